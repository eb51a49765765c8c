/* Hook: a callable in C in front of the hook in Python. HookContext: the state that hooks of one purpose share. */

#include "native.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    hook_path path;
    PyObject *context, *fallback, *on_error, *name;
} Hook;

/* Pass an Exception of a hook to `on_error`, as the except clause of the hook in Python would. Every other exception,
such as KeyboardInterrupt, goes on to the program. So does one of a signal handler, which `on_error` raises again: an
earlier one is reported first, and the one that is set is then forgotten. Consumes the reference to the earlier one. */
int report_hook_failure(PyObject *on_error, PyObject *first, PyObject *second, PyObject *earlier) {
    if (earlier != NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            Py_DECREF(earlier);
            return -1;
        }
        PyObject *later = take_exception();
        PyObject *reported = PyObject_CallFunctionObjArgs(on_error, first, second, earlier, NULL);
        Py_DECREF(earlier);
        if (reported == NULL) {
            Py_DECREF(later);
            return -1;
        }
        Py_DECREF(reported);
        set_exception(later);
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *error = take_exception();
    if (error == NULL)
        return -1;
    PyObject *result = PyObject_CallFunctionObjArgs(on_error, first, second, error, NULL);
    Py_DECREF(error);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *hook_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Hook *self = (Hook *)op;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (self->fallback == NULL) /* cleared by the garbage collector, with the session it belonged to */
        Py_RETURN_NONE;
    if (nargs >= 2 && kwnames == NULL) {
        PyObject *earlier = NULL;
        switch (self->path(self->context, args, nargs, &earlier)) {
        case HOOK_DONE:
            Py_RETURN_NONE;
        case HOOK_FAILED:
            if (report_hook_failure(self->on_error, args[0], args[1], earlier) < 0)
                return NULL;
            Py_RETURN_NONE;
        case HOOK_FALLBACK:
            break;
        }
    }
    return PyObject_Vectorcall(self->fallback, args, nargsf, kwnames);
}

PyObject *hook_new(module_state *module, hook_path path, PyObject *context, PyObject *fallback, PyObject *on_error) {
    PyObject *name = PyObject_GetAttrString(fallback, "__name__");
    if (name == NULL)
        return NULL;
    Hook *self = (Hook *)module->hook_type->tp_alloc(module->hook_type, 0);
    if (self == NULL) {
        Py_DECREF(name);
        return NULL;
    }
    self->vectorcall = hook_vectorcall;
    self->path = path;
    self->context = Py_NewRef(context);
    self->fallback = Py_NewRef(fallback);
    self->on_error = Py_NewRef(on_error);
    self->name = name;
    return (PyObject *)self;
}

static int hook_traverse(PyObject *op, visitproc visit, void *arg) {
    Hook *self = (Hook *)op;
    Py_VISIT(self->context);
    Py_VISIT(self->fallback);
    Py_VISIT(self->on_error);
    Py_VISIT(self->name);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int hook_clear(PyObject *op) {
    Hook *self = (Hook *)op;
    Py_CLEAR(self->fallback); /* first: without it a call does nothing */
    Py_CLEAR(self->context);
    Py_CLEAR(self->on_error);
    Py_CLEAR(self->name);
    return 0;
}

static void hook_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    hook_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMemberDef hook_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Hook, vectorcall), READONLY, NULL},
    {"__name__", T_OBJECT_EX, offsetof(Hook, name), READONLY, "name of the hook in Python"},
    {"__wrapped__", T_OBJECT_EX, offsetof(Hook, fallback), READONLY, "the hook in Python"},
    {NULL},
};

static PyType_Slot hook_slots[] = {
    {Py_tp_doc, "The usual case of a hook in C, in front of the hook in Python."},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_members, hook_members},
    {0, NULL},
};

PyType_Spec hook_spec = {
    .name = "autoprof._capture.marks._c.Hook",
    .basicsize = sizeof(Hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = hook_slots,
};

int append_clock_reading(HookContext *self, long long code) {
    PyObject *read_clock = Py_NewRef(self->read_clock); /* a reading in Python may have update() called */
    PyObject *reading = PyObject_CallNoArgs(read_clock);
    Py_DECREF(read_clock);
    if (reading == NULL)
        return -1;
    int failed = mark_buffer_append(self->buffer, code, reading);
    Py_DECREF(reading);
    return failed;
}

/* Get the id of the backward pass that runs on this thread, -1 if none does. */
int current_graph_task(module_state *module, long long *task) {
    PyObject *id = PyObject_CallNoArgs(module->graph_task_id);
    if (id == NULL)
        return -1;
    *task = PyLong_AsLongLong(id);
    Py_DECREF(id);
    return *task == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *hook_context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "nodes", "gaps", "node_prehook", "passes", "make_carrier", NULL};
    module_state *module = state_of_type(type);
    PyObject *buffer, *nodes = NULL, *gaps = NULL, *node_prehook = NULL, *passes = NULL, *make_carrier = NULL;
    if (module == NULL)
        return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|$O!O!OO!O:HookContext", names, module->mark_buffer_type, &buffer,
                                     &PyDict_Type, &nodes, &PyList_Type, &gaps, &node_prehook, module->pass_state_type,
                                     &passes, &make_carrier))
        return NULL;
    if (module->hook_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() has not been called");
        return NULL;
    }
    if ((nodes == NULL) != (gaps == NULL) || (nodes == NULL) != (node_prehook == NULL)) {
        PyErr_SetString(PyExc_TypeError, "nodes, gaps and node_prehook go together");
        return NULL;
    }
    HookContext *self = (HookContext *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->module = module;
    self->buffer = (MarkBuffer *)Py_NewRef(buffer);
    self->nodes = Py_XNewRef(nodes);
    self->gaps = Py_XNewRef(gaps);
    self->node_prehook = Py_XNewRef(node_prehook);
    self->passes = (PassState *)Py_XNewRef(passes);
    self->make_carrier = make_carrier == Py_None ? NULL : Py_XNewRef(make_carrier);
    self->read_clock = Py_NewRef(module->perf_counter_ns);
    self->creator_thread = PyThread_get_thread_ident();
    return (PyObject *)self;
}

static PyObject *hook_context_update(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"enabled", "idle", "single_thread", "training_thread", "read_clock", NULL};
    HookContext *self = (HookContext *)op;
    int enabled, idle, single_thread;
    unsigned long training_thread;
    PyObject *read_clock;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$pppkO:update", names, &enabled, &idle, &single_thread, &training_thread,
                                     &read_clock))
        return NULL;
    if (self->buffer == NULL) /* cleared by the garbage collector: its hooks hand over to Python */
        Py_RETURN_NONE;
    self->enabled = (char)enabled;
    self->idle = (char)idle;
    self->single_thread = (char)single_thread;
    self->training_thread = training_thread;
    self->reads_host_clock = read_clock == self->module->perf_counter_ns;
    Py_XSETREF(self->read_clock, Py_NewRef(read_clock));
    Py_RETURN_NONE;
}

static PyObject *new_hook(PyObject *op, PyObject *args, PyObject *kwargs, hook_path path) {
    static char *names[] = {"fallback", "on_error", NULL};
    PyObject *fallback, *on_error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &fallback, &on_error))
        return NULL;
    return hook_new(((HookContext *)op)->module, path, op, fallback, on_error);
}

static PyObject *hook_context_node_prehook(PyObject *op, PyObject *args, PyObject *kwargs) {
    if (((HookContext *)op)->passes == NULL) {
        PyErr_SetString(PyExc_TypeError, "a HookContext for hooks of nodes needs passes");
        return NULL;
    }
    return new_hook(op, args, kwargs, node_prehook_path);
}

static int hook_context_traverse(PyObject *op, visitproc visit, void *arg) {
    HookContext *self = (HookContext *)op;
    Py_VISIT(self->buffer);
    Py_VISIT(self->nodes);
    Py_VISIT(self->gaps);
    Py_VISIT(self->node_prehook);
    Py_VISIT(self->passes);
    Py_VISIT(self->read_clock);
    Py_VISIT(self->make_carrier);
    int stopped = node_marks_traverse(self, visit, arg);
    if (stopped)
        return stopped;
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int hook_context_clear(PyObject *op) {
    HookContext *self = (HookContext *)op;
    self->enabled = 0; /* first: a hook that is called after this hands over to Python */
    Py_CLEAR(self->buffer);
    Py_CLEAR(self->nodes);
    Py_CLEAR(self->gaps);
    Py_CLEAR(self->node_prehook);
    Py_CLEAR(self->passes);
    Py_CLEAR(self->read_clock);
    Py_CLEAR(self->make_carrier);
    node_marks_clear(self);
    return 0;
}

static void hook_context_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    hook_context_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef hook_context_methods[] = {
    {"update", KEYWORDS(hook_context_update), "Renew the state that the recorder changes."},
    {"node_prehook", KEYWORDS(hook_context_node_prehook), "Return a hook to be called before an autograd node."},
    {NULL},
};

static PyType_Slot hook_context_slots[] = {
    {Py_tp_doc, "HookContext(buffer, *, nodes=..., gaps=..., node_prehook=..., passes=..., make_carrier=None)\n--\n\n"
                "The state that hooks of one purpose share, and the factory of the hooks."},
    {Py_tp_new, hook_context_new},
    {Py_tp_dealloc, hook_context_dealloc},
    {Py_tp_traverse, hook_context_traverse},
    {Py_tp_clear, hook_context_clear},
    {Py_tp_methods, hook_context_methods},
    {0, NULL},
};

PyType_Spec hook_context_spec = {
    .name = "autoprof._capture.marks._c.HookContext",
    .basicsize = sizeof(HookContext),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_context_slots,
};
