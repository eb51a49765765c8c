/* Hooks and what they share, as Python sees them. */

#include "marks.h"

static PyObject *perf_counter_ns;

/* What a hook of ours raised is told to its owner, in Python: nothing of it reaches the program. */
static PyObject *tell(State *self, PyObject *const *args) {
    PyObject *type, *error, *trace, *told;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    told = PyObject_CallFunctionObjArgs(self->failed, args[0], args[1], error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return told;
}

static PyObject *hook_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    Hook *self = (Hook *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (self->slow == NULL) /* collected, with the session that it was of */
        Py_RETURN_NONE;
    if (count >= 2 && names == NULL) {
        int mine = 0;
        PyObject *result = self->fast(self->state, args, count, &mine);
        if (result != NULL)
            return result;
        if (mine)
            return tell(self->state, args);
    }
    return PyObject_Vectorcall(self->slow, args, flags, names);
}

static int hook_traverse(Hook *self, visitproc visit, void *arg) {
    Py_VISIT(self->state);
    Py_VISIT(self->slow);
    return 0;
}

static int hook_clear(Hook *self) {
    Py_CLEAR(self->state);
    Py_CLEAR(self->slow);
    Py_CLEAR(self->name);
    return 0;
}

static void hook_dealloc(Hook *self) {
    PyObject_GC_UnTrack(self);
    hook_clear(self);
    PyObject_GC_Del(self);
}

static PyMemberDef hook_members[] = {
    {"__name__", T_OBJECT, offsetof(Hook, name), READONLY, "that of the hook in Python; a pickle holds it"},
    {"__wrapped__", T_OBJECT, offsetof(Hook, slow), READONLY, "the hook in Python"},
    {NULL},
};

static PyTypeObject HookType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "autoprof._capture.marks._c.Hook",
    .tp_doc = "The usual path of a hook, before the hook in Python.",
    .tp_basicsize = sizeof(Hook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Hook, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_members = hook_members,
    .tp_traverse = (traverseproc)hook_traverse,
    .tp_clear = (inquiry)hook_clear,
    .tp_dealloc = (destructor)hook_dealloc,
};

static PyObject *state_hook(State *self, PyObject *args) {
    const char *path;
    PyObject *slow;
    Fast fast;
    if (!PyArg_ParseTuple(args, "sO:hook", &path, &slow))
        return NULL;
    if ((fast = find_path(path)) == NULL)
        return PyErr_Format(PyExc_ValueError, "no path is called %s", path);
    PyObject *name = PyObject_GetAttrString(slow, "__name__");
    if (name == NULL)
        return NULL;
    Hook *hook = PyObject_GC_New(Hook, &HookType);
    if (hook == NULL) {
        Py_DECREF(name);
        return NULL;
    }
    Py_INCREF(self);
    Py_INCREF(slow);
    hook->vectorcall = hook_call;
    hook->state = self;
    hook->slow = slow;
    hook->name = name;
    hook->fast = fast;
    PyObject_GC_Track(hook);
    return (PyObject *)hook;
}

static PyObject *state_renew(State *self, PyObject *args) {
    PyObject *read;
    if (!PyArg_ParseTuple(args, "ppkO:renew", &self->on, &self->alone, &self->training, &read))
        return NULL;
    Py_INCREF(read);
    Py_XSETREF(self->read, read);
    self->host = read == perf_counter_ns;
    Py_RETURN_NONE;
}

/* Find where objects of a class have a slot. */
static int find_slot(PyTypeObject *type, const char *name, Py_ssize_t *offset) {
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);
    if (found == NULL)
        return -1;
    int is_slot = Py_TYPE(found) == &PyMemberDescr_Type;
    if (is_slot)
        *offset = ((PyMemberDescrObject *)found)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s is no slot of %s", name, type->tp_name);
    Py_DECREF(found);
    return is_slot ? 0 : -1;
}

static int state_init(State *self, PyObject *args, PyObject *named) {
    static char *names[] = {"marked", "tensor", "tape", "failed", "task", "number", "nodes", "gaps", "passes",
                            "graded", "autocast", "kinds", "full", "most", "home", NULL};
    PyObject *given[11];
    if (!PyArg_ParseTupleAndKeywords(args, named, "O!O!O!OOOO!O!OOO(LLLL)nnk:State", names, &PyType_Type, &given[0],
                                     &PyType_Type, &given[1], &TapeType, &given[2], &given[3], &given[4], &given[5],
                                     &PyDict_Type, &given[6], &PyList_Type, &given[7], &given[8], &given[9],
                                     &given[10], &self->start, &self->end, &self->pass, &self->kinds, &self->full, &self->most, &self->home))
        return -1;
    const struct {
        const char *name;
        Py_ssize_t *offset;
    } slots[] = {
        {"entering", &self->entering}, {"recomputing", &self->recomputing}, {"leaving", &self->leaving},
        {"open", &self->open},         {"_attached", &self->attached},      {"_after", &self->after},
        {"_usual", &self->usual},      {"_met", &self->met},                {"spent_ns", &self->spent},
    };
    size_t wanted = PyObject_HasAttrString(given[0], "_usual") ? sizeof slots / sizeof *slots : 4;
    for (size_t i = 0; i < wanted; i++)
        if (find_slot((PyTypeObject *)given[0], slots[i].name, slots[i].offset) < 0)
            return -1;
    PyObject **kept[] = {(PyObject **)&self->marked, (PyObject **)&self->tensor, (PyObject **)&self->tape, &self->failed,
                         &self->task, &self->number, &self->nodes, &self->gaps, &self->passes, &self->graded,
                         &self->autocast};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        Py_INCREF(given[i]);
        Py_XSETREF(*kept[i], given[i]);
    }
    return 0;
}

#define EACH_OBJECT(DO)                                                                                          \
    DO(marked) DO(tensor) DO(tape) DO(read) DO(failed) DO(task) DO(number) DO(nodes) DO(gaps) DO(passes) DO(mark) \
    DO(graded) DO(autocast)

static int state_traverse(State *self, visitproc visit, void *arg) {
#define VISIT(field) Py_VISIT(self->field);
    EACH_OBJECT(VISIT)
    return 0;
}

/* Hooks may outlive this: none of them is to find half a state. */
static int state_clear(State *self) {
#define CLEAR(field) Py_CLEAR(self->field);
    self->on = 0;
    EACH_OBJECT(CLEAR)
    return 0;
}

static void state_dealloc(State *self) {
    PyObject_GC_UnTrack(self);
    state_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef state_methods[] = {
    {"hook", (PyCFunction)state_hook, METH_VARARGS, "hook(path, slow): return a hook for this path before the one in Python."},
    {"renew", (PyCFunction)state_renew, METH_VARARGS, "renew(on, alone, training, read): take what the recorder has changed."},
    {NULL},
};

static PyMemberDef state_members[] = {
    {"mark", T_OBJECT, offsetof(State, mark), 0, "the hook that nodes are given"},
    {NULL},
};

static PyTypeObject StateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "autoprof._capture.marks._c.State",
    .tp_doc = "What the hooks of one purpose share.",
    .tp_basicsize = sizeof(State),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)state_init,
    .tp_methods = state_methods,
    .tp_members = state_members,
    .tp_traverse = (traverseproc)state_traverse,
    .tp_clear = (inquiry)state_clear,
    .tp_dealloc = (destructor)state_dealloc,
};

/* torch.compile looks a class's `__call__` up and traces it if it is Python's; the slot stays what it is. */
static PyObject *show(PyObject *Py_UNUSED(module), PyObject *function) {
    if (PyDict_SetItemString(HookType.tp_dict, "__call__", function) < 0)
        return NULL;
    PyType_Modified(&HookType);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"show", show, METH_O, "show(function): have this be what a hook looks like to a compiler that traces it."},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "autoprof._capture.marks._c",
    .m_doc = "Marks in C: their buffer, and the usual path of the hooks.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__c(void) {
    if (intern_names() < 0 || intern_looks() < 0)
        return NULL;
    PyObject *time = PyImport_ImportModule("time"), *module;
    if (time == NULL || (perf_counter_ns = PyObject_GetAttrString(time, "perf_counter_ns")) == NULL)
        return NULL;
    Py_DECREF(time);
    if (PyType_Ready(&TapeType) < 0 || PyType_Ready(&StateType) < 0 || PyType_Ready(&HookType) < 0 ||
        (module = PyModule_Create(&definition)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(module, "Tape", (PyObject *)&TapeType) < 0 ||
        PyModule_AddObjectRef(module, "State", (PyObject *)&StateType) < 0 ||
        PyModule_AddIntConstant(module, "ABI_VERSION", 1) < 0) { /* see mark_batch.py */
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
