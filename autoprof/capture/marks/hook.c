/* HookContext: the state that the marks of one purpose share. */

#include "native.h"

/* Pass the Exception that is set to `on_error`, as the except clause of the hook in Python would. Every other exception,
such as KeyboardInterrupt, goes on to the program, and so does one of a signal handler, which `on_error` raises again. */
int report_hook_failure(PyObject *on_error, PyObject *first, PyObject *second) {
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *error = take_exception();
    PyObject *result = PyObject_CallFunctionObjArgs(on_error, first, second, error, NULL);
    Py_DECREF(error);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

int append_clock_reading(HookContext *self, long long code) {
    PyObject *read_clock = Py_NewRef(self->read_clock); /* a reading in Python may have update() called */
    PyObject *reading = PyObject_CallNoArgs(read_clock);
    Py_DECREF(read_clock);
    if (reading == NULL)
        return -1;
    int failed = name_thread(self) < 0 || mark_buffer_append(self->buffer, code, reading) < 0 ? -1 : 0;
    Py_DECREF(reading);
    return failed;
}

int call_for_number(PyObject *function, long long *number) {
    PyObject *value = PyObject_CallNoArgs(function);
    if (value == NULL)
        return -1;
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *hook_context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "nodes", "gaps", "fallback", "on_error", NULL};
    module_state *module = state_of_type(type);
    PyObject *buffer, *nodes = NULL, *gaps = NULL, *fallback = NULL, *on_error = NULL;
    if (module == NULL)
        return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|$O!O!OO:HookContext", names, module->mark_buffer_type, &buffer,
                                     module->node_marks_type, &nodes, &PyList_Type, &gaps, &fallback, &on_error))
        return NULL;
    if (module->graph_task_id == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() has not been called");
        return NULL;
    }
    if ((nodes == NULL) != (gaps == NULL) || (fallback == NULL) != (on_error == NULL)) {
        PyErr_SetString(PyExc_TypeError, "nodes and gaps go together; fallback and on_error too");
        return NULL;
    }
    HookContext *self = (HookContext *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->module = module;
    self->buffer = (MarkBuffer *)Py_NewRef(buffer);
    self->nodes = (NodeMarks *)Py_XNewRef(nodes);
    self->gaps = Py_XNewRef(gaps);
    self->fallback = Py_XNewRef(fallback);
    self->on_error = Py_XNewRef(on_error);
    self->read_clock = Py_NewRef(module->perf_counter_ns);
    return (PyObject *)self;
}

static PyObject *hook_context_update(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"enabled", "training_thread", "read_clock", NULL};
    HookContext *self = (HookContext *)op;
    int enabled;
    unsigned long training_thread;
    PyObject *read_clock;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$pkO:update", names, &enabled, &training_thread, &read_clock))
        return NULL;
    if (self->buffer == NULL) /* cleared by the garbage collector: its hooks hand over to Python */
        Py_RETURN_NONE;
    self->enabled = (char)enabled;
    self->training_thread = training_thread;
    self->reads_host_clock = read_clock == self->module->perf_counter_ns;
    Py_XSETREF(self->read_clock, Py_NewRef(read_clock));
    Py_RETURN_NONE;
}

/* Append one mark of any thread, read from the clock now. */
static hook_outcome append_mark(HookContext *self, PyObject *code) {
    if (self->buffer != NULL && self->buffer->suspended)
        return HOOK_DONE;
    if (!is_appending(self) || !has_room(self))
        return HOOK_FALLBACK;
    long long value = PyLong_AsLongLong(code);
    if (value == -1 && PyErr_Occurred())
        return HOOK_FAILED;
    return append_reading(self, value) < 0 ? HOOK_FAILED : HOOK_DONE;
}

static PyObject *hook_context_mark(PyObject *op, PyObject *code) {
    HookContext *self = (HookContext *)op;
    if (self->fallback == NULL) /* cleared by the garbage collector, or a context of another purpose */
        Py_RETURN_NONE;
    PyObject *done = NULL;
    Py_INCREF(op); /* a reading in Python may run anything */
    hook_outcome outcome = append_mark(self, code);
    if (outcome == HOOK_FALLBACK)
        done = PyObject_CallFunctionObjArgs(self->fallback, code, Py_None, NULL);
    else if (outcome == HOOK_DONE || report_hook_failure(self->on_error, code, Py_None) == 0)
        done = Py_NewRef(Py_None);
    Py_DECREF(op);
    return done;
}

#define HOOK_CONTEXT_FIELDS(DO) DO(buffer) DO(nodes) DO(gaps) DO(fallback) DO(on_error) DO(read_clock)
DEFINE_COLLECTION(HookContext, hook_context, HOOK_CONTEXT_FIELDS)

static PyMethodDef hook_context_methods[] = {
    {"update", KEYWORDS(hook_context_update), "Renew the state that the recorder changes."},
    {"mark", hook_context_mark, METH_O, "Append one mark with this code, read now; of a context with a fallback."},
    {NULL},
};

static PyType_Slot hook_context_slots[] = {
    {Py_tp_doc, "HookContext(buffer, **state)\n--\n\nThe state that the marks of one purpose share."},
    {Py_tp_new, hook_context_new},
    COLLECTION_SLOTS(hook_context),
    {Py_tp_methods, hook_context_methods},
    {0, NULL},
};

DEFINE_SPEC(HookContext, hook_context, hook_context_slots, 0);
