/* CallMatcher: recognises a call of the model that equals the call before. */

#include "native.h"

/* The fields of `expected`. */
enum { NUMBER, SHAPE, DTYPE, TRAINING, GRAD, AUTOCAST, FIELDS }; /* as in state.py */

typedef int (*comparison)(PyObject *, PyObject *);

static int is_identical(PyObject *value, PyObject *expected) {
    return value == expected;
}

static int is_equal(PyObject *value, PyObject *expected) {
    return PyObject_RichCompareBool(value, expected, Py_EQ);
}

/* Compare a new reference with an expected value, and release it. Returns 1, 0, or -1 with the exception of the user's
attribute, or of its comparison. */
static int compare(PyObject *value, PyObject *expected, comparison equal) {
    if (value == NULL)
        return -1;
    int result = equal(value, expected);
    Py_DECREF(value);
    return result;
}

/* Whether the call equals the expected one; -1 with an exception. Attributes of a tensor or a module may run any code. */
static int matches(module_state *module, PyObject *model, PyObject *tensor, PyObject *expected) {
    long long task;
    int same;
    if (current_graph_task(module, &task) < 0)
        return -1;
    if (task != -1) /* a forward that a backward pass recomputes */
        return 0;
    if ((same = compare(PyObject_GetAttr(tensor, module->str_shape), PyTuple_GET_ITEM(expected, SHAPE), is_equal)) != 1)
        return same;
    if ((same = compare(PyObject_GetAttr(tensor, module->str_dtype), PyTuple_GET_ITEM(expected, DTYPE),
                        is_identical)) != 1)
        return same;
    if ((same = compare(PyObject_GetAttr(model, module->str_training), PyTuple_GET_ITEM(expected, TRAINING),
                        is_identical)) != 1)
        return same;
    if ((same = compare(PyObject_CallNoArgs(module->is_grad_enabled), PyTuple_GET_ITEM(expected, GRAD),
                        is_identical)) != 1)
        return same;
    return compare(PyObject_CallNoArgs(module->is_autocast_enabled), Py_False, is_identical);
}

/* A call with one tensor, without autocast, that equals the expected one. */
static hook_outcome call_matcher_path(PyObject *context, PyObject *const *args, Py_ssize_t nargs,
                                      PyObject **Py_UNUSED(earlier)) {
    CallMatcher *self = (CallMatcher *)context;
    PyObject *expected = self->expected;
    if (!self->enabled || expected == NULL || self->numbers == NULL || nargs != 4 ||
        !PyObject_TypeCheck(args[0], self->module->hook_state_type) || !PyTuple_CheckExact(args[2]) || PyTuple_GET_SIZE(args[2]) != 1 || !PyDict_CheckExact(args[3]) ||
        PyDict_GET_SIZE(args[3]) > 0 || !PyTuple_Check(expected) || PyTuple_GET_SIZE(expected) != FIELDS ||
        PyTuple_GET_ITEM(expected, AUTOCAST) != Py_False)
        return HOOK_FALLBACK;
    PyObject *tensor = PyTuple_GET_ITEM(args[2], 0);
    long long began = now_ns();
    if (began < 0 || !PyObject_TypeCheck(tensor, self->module->tensor_type))
        return HOOK_FALLBACK;
    Py_INCREF(expected); /* code that runs in the comparison may replace it */
    int same = matches(self->module, args[1], tensor, expected);
    if (same == 1 && PyList_Append(self->numbers, PyTuple_GET_ITEM(expected, NUMBER)) < 0)
        same = -1;
    Py_DECREF(expected);
    if (same == 0)
        return HOOK_FALLBACK;
    self->spent_ns += now_ns() - began;
    return same < 0 ? HOOK_FAILED : HOOK_DONE;
}

static PyObject *call_matcher_forward_pre_hook(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fallback", "on_error", NULL};
    PyObject *fallback, *on_error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:forward_pre_hook", names, &fallback, &on_error))
        return NULL;
    return hook_new(((CallMatcher *)op)->module, call_matcher_path, op, fallback, on_error);
}

static PyObject *call_matcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    module_state *module = state_of_type(type);
    if (module == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, ":CallMatcher", names))
        return NULL;
    if (module->hook_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() has not been called");
        return NULL;
    }
    CallMatcher *self = (CallMatcher *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->module = module;
    self->expected = Py_NewRef(Py_None);
    if ((self->numbers = PyList_New(0)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int call_matcher_traverse(PyObject *op, visitproc visit, void *arg) {
    CallMatcher *self = (CallMatcher *)op;
    Py_VISIT(self->numbers);
    Py_VISIT(self->expected);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int call_matcher_clear(PyObject *op) {
    CallMatcher *self = (CallMatcher *)op;
    self->enabled = 0; /* first: a hook that is called after this hands over to Python */
    Py_CLEAR(self->numbers);
    Py_CLEAR(self->expected);
    return 0;
}

static void call_matcher_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    call_matcher_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"forward_pre_hook", (PyCFunction)(void (*)(void))call_matcher_forward_pre_hook, METH_VARARGS | METH_KEYWORDS,
     "Return a hook to be called before the model's forward."},
    {NULL},
};

static PyMemberDef members[] = {
    {"numbers", T_OBJECT_EX, offsetof(CallMatcher, numbers), READONLY, "list of the numbers of the step's calls"},
    {"expected", T_OBJECT_EX, offsetof(CallMatcher, expected), 0, "the call before, an ExpectedCall, or None"},
    {"spent_ns", T_LONGLONG, offsetof(CallMatcher, spent_ns), 0, "time that comparisons took, in nanoseconds"},
    {"enabled", T_BOOL, offsetof(CallMatcher, enabled), 0, "whether calls are compared"},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "CallMatcher()\n--\n\nRecognises a call of the model that equals the call before."},
    {Py_tp_new, call_matcher_new},
    {Py_tp_dealloc, call_matcher_dealloc},
    {Py_tp_traverse, call_matcher_traverse},
    {Py_tp_clear, call_matcher_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec call_matcher_spec = {
    .name = "autoprof._capture.marks._c.CallMatcher",
    .basicsize = sizeof(CallMatcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
