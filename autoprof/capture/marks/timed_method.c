/* TimedMethod: a method of tensors that is timed where it may wait for a device; others cost a few nanoseconds. A look-up
on an object returns the method bound to it, or `watch(bound, object, name)` where the attribute `is_here` of a listener,
called with the object, is true. Without `of_tensor` it is `watch(bound, None, name)` wherever there is a listener. */

#include "native.h"

typedef struct {
    PyObject_HEAD
    module_state *module; /* borrowed: the type of this object holds the module */
    PyObject *method;
    PyObject *name;
    PyObject *listeners; /* list */
    PyObject *watch;
    char of_tensor;
} TimedMethod;

static PyObject *bind(PyObject *method, PyObject *instance, PyObject *owner) {
    descrgetfunc get = Py_TYPE(method)->tp_descr_get;
    return get == NULL ? Py_NewRef(method) : get(method, instance, owner);
}

/* Whether a listener follows the device of this tensor, also where asking fails: `watch` counts that failure. Returns
-1 with an exception that is no Exception, as a Ctrl-C in an attribute of a tensor's subclass. */
static int is_followed(TimedMethod *self, PyObject *tensor) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(self->listeners); at++) {
        PyObject *listener = Py_NewRef(PyList_GET_ITEM(self->listeners, at)); /* code of the tensor may remove it */
        PyObject *is_here = PyObject_GetAttr(listener, self->module->str_is_here);
        Py_DECREF(listener);
        PyObject *answer = is_here == NULL ? NULL : PyObject_CallOneArg(is_here, tensor);
        Py_XDECREF(is_here);
        int here = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        if (here < 0) {
            if (!PyErr_ExceptionMatches(PyExc_Exception))
                return -1;
            PyErr_Clear();
            here = 1;
        }
        if (here)
            return 1;
    }
    return 0;
}

static PyObject *timed_method_get(PyObject *op, PyObject *instance, PyObject *owner) {
    TimedMethod *self = (TimedMethod *)op;
    if (self->method == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the method has been cleared");
        return NULL;
    }
    if (instance == NULL || instance == Py_None)
        return owner == NULL || owner == Py_None ? Py_NewRef(self->method) : bind(self->method, NULL, owner);
    PyObject *bound = bind(self->method, instance, owner);
    if (bound == NULL || PyList_GET_SIZE(self->listeners) == 0)
        return bound;
    int followed = self->of_tensor ? is_followed(self, instance) : 1;
    if (followed == 0)
        return bound;
    PyObject *timed = followed < 0 ? NULL
                                   : PyObject_CallFunctionObjArgs(self->watch, bound,
                                                                  self->of_tensor ? instance : Py_None, self->name, NULL);
    Py_DECREF(bound);
    return timed;
}

static PyObject *timed_method_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"method", "name", "of_tensor", "listeners", "watch", NULL};
    PyObject *method, *name, *listeners, *watch;
    int of_tensor;
    module_state *module = state_of_type(type);
    if (module == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "OUpO!O:TimedMethod", names, &method, &name,
                                                       &of_tensor, &PyList_Type, &listeners, &watch))
        return NULL;
    TimedMethod *self = (TimedMethod *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->module = module;
    self->method = Py_NewRef(method);
    self->name = Py_NewRef(name);
    self->listeners = Py_NewRef(listeners);
    self->watch = Py_NewRef(watch);
    self->of_tensor = (char)of_tensor;
    return (PyObject *)self;
}

#define TIMED_METHOD_FIELDS(DO) DO(method) DO(name) DO(listeners) DO(watch)
DEFINE_COLLECTION(TimedMethod, timed_method, TIMED_METHOD_FIELDS)

static PyMemberDef members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(TimedMethod, method), READONLY, "the method"},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "TimedMethod(method, name, of_tensor, listeners, watch)\n--\n\nA method that is timed on a device."},
    {Py_tp_new, timed_method_new},
    COLLECTION_SLOTS(timed_method),
    {Py_tp_descr_get, timed_method_get},
    {Py_tp_members, members},
    {0, NULL},
};

DEFINE_SPEC(TimedMethod, timed_method, slots, 0);
