/* The usual path of the hooks in hooks.py and backward.py, in C.

A hook here stands before the one written in Python (its `slow`), and does what that does for the usual call: one of
the training thread, with one tensor, while there is room. Whatever else comes is handed to the one in Python before
anything has been done, so that what hooks mean stands in one place, and everything works without this file.

What is made here is kept as Python keeps it: marks in the recorder's list, nodes in the watch's dict. Two appends in a
row run no Python code between them, so threads share the list without a lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>
#if defined(__linux__)
#include <time.h>
#endif

#ifdef Py_GIL_DISABLED
#error "these hooks count on the interpreter's lock; without it those in Python are used"
#endif

static PyObject *str_grad_fn, *str_requires_grad, *str_sequence_nr, *str_register_prehook, *str_running;
static PyObject *perf_counter_ns;

/* What the hooks of one purpose share. `renew` and `begin_step` renew what changes. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *marked, *tensor;
    PyObject *buffer, *read, *failed;
    PyObject *task, *number;                         /* torch's: which backward runs, which node would be next */
    PyObject *nodes, *gaps, *passes, *mark;          /* where backward is followed; `mark` is the nodes' hook */
    PyObject *serial, *ordinals;
    Py_ssize_t entering, recomputing, leaving, open; /* where a Marked has its slots */
    Py_ssize_t full, most;
    long long start, end, pass, kinds;               /* as in recorder.py */
    unsigned long training, home;
    int on, alone, host;
} State;

typedef PyObject *(*Fast)(State *, PyObject *const *, Py_ssize_t, int *);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    State *state;
    PyObject *slow, *name;
    Fast fast;
} Hook;

static inline PyObject *slot(PyObject *owner, Py_ssize_t offset) {
    return *(PyObject **)((char *)owner + offset);
}

static inline PyObject *reading(State *self) {
#if defined(__linux__)
    if (self->host) { /* what time.perf_counter_ns reads */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return PyLong_FromLongLong((long long)now.tv_sec * 1000000000LL + now.tv_nsec);
    }
#endif
    return PyObject_CallNoArgs(self->read);
}

/* One mark: a reading, two appends. */
static int append(State *self, PyObject *code) {
    PyObject *read = reading(self);
    if (read == NULL)
        return -1;
    int failed = PyList_Append(self->buffer, code);
    if (!failed && PyList_Append(self->buffer, read) < 0) {
        Py_ssize_t count = PyList_GET_SIZE(self->buffer);
        PyList_SetSlice(self->buffer, count - 1, count, NULL);
        failed = -1;
    }
    Py_DECREF(read);
    return failed;
}

/* Whether the mark is one that needs nothing but an append. */
static inline int usual(State *self) {
    return self->on && PyThread_get_thread_ident() == self->training;
}

static inline int has_room(State *self) {
    return PyList_GET_SIZE(self->buffer) < self->full;
}

/* A code with a call's ordinal in it, or NULL. */
static inline PyObject *with_ordinal(long long ordinal, PyObject *code) {
    return PyLong_FromLongLong(ordinal | PyLong_AsLongLong(code));
}

/* Where a Marked is entered from: a forward, or a backward pass that computes it again. */
static PyObject *entering(State *self, PyObject *owner) {
    PyObject *task = PyObject_CallNoArgs(self->task);
    if (task == NULL)
        return NULL;
    long long running = PyLong_AsLongLong(task);
    Py_DECREF(task);
    if (running == -1 && PyErr_Occurred())
        return NULL;
    return slot(owner, running == -1 ? self->entering : self->recomputing);
}

static inline int is_marked(State *self, PyObject *owner) {
    return PyObject_TypeCheck(owner, self->marked);
}

static PyObject *plain_enter(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count != 3 || !usual(self) || !has_room(self) || !is_marked(self, args[0]))
        return NULL;
    *mine = 1;
    PyObject *code = entering(self, args[0]);
    if (code == NULL || append(self, code) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *plain_leave(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count != 4 || !self->alone || !usual(self) || !is_marked(self, args[0]))
        return NULL;
    *mine = 1;
    if (append(self, slot(args[0], self->leaving)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Have a node mark, as what `code` says. */
static int watch(State *self, PyObject *node, PyObject *number, long long code) {
    int done = -1;
    PyObject *hook = NULL, *handle = NULL, *codes = PyList_New(2), *value = PyLong_FromLongLong(code);
    if (codes == NULL || value == NULL) {
        Py_XDECREF(value);
        goto end;
    }
    Py_INCREF(self->serial);
    PyList_SET_ITEM(codes, 0, self->serial);
    PyList_SET_ITEM(codes, 1, value);
    if (PyDict_SetItem(self->nodes, number, codes) < 0 || (hook = PyMethod_New(self->mark, codes)) == NULL)
        goto end;
    handle = PyObject_CallMethodOneArg(node, str_register_prehook, hook);
    done = handle == NULL ? -1 : 0;
end:
    Py_XDECREF(codes);
    Py_XDECREF(hook);
    Py_XDECREF(handle);
    return done;
}

/* Watch what one tensor comes from: the first call that a node enters decides what it means. */
static int watch_input(State *self, PyObject *tensor, long long ordinal, long long *newest) {
    PyObject *number = NULL, *node = PyObject_GetAttr(tensor, str_grad_fn);
    int done = node == NULL ? -1 : 0;
    if (!done && node != Py_None) {
        number = PyObject_CallMethodNoArgs(node, str_sequence_nr);
        done = number == NULL ? -1 : PyDict_Contains(self->nodes, number);
        if (!done && PyDict_GET_SIZE(self->nodes) < self->most)
            done = watch(self, node, number, ordinal | self->end);
        if (done >= 0) {
            int above;
            long long made = PyLong_AsLongLongAndOverflow(number, &above);
            if (above > 0)
                made = LLONG_MAX;
            if (made > *newest)
                *newest = made;
        }
    }
    Py_XDECREF(number);
    Py_XDECREF(node);
    return done < 0 ? -1 : 0;
}

/* Watch what a call takes, and note it as one with a gap before it where something newer was made than that. */
static int watch_inputs(State *self, PyObject *given, PyObject *ordinal) {
    long long newest = -1, count = PyLong_AsLongLong(ordinal);
    PyObject *made = PyObject_CallNoArgs(self->number);
    if (made == NULL)
        return -1;
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(given); i++)
        if (PyTuple_GET_ITEM(given, i) != Py_None)
            failed = watch_input(self, PyTuple_GET_ITEM(given, i), count, &newest);
    if (!failed && newest < PyLong_AsLongLong(made) - 1 && PyList_GET_SIZE(self->gaps) < self->most) {
        PyObject *gap = PyTuple_Pack(2, ordinal, made);
        failed = gap == NULL ? -1 : PyList_Append(self->gaps, gap);
        Py_XDECREF(gap);
    }
    Py_DECREF(made);
    return failed;
}

/* Whether a call takes tensors only, which is what can be watched here. */
static int takes_tensors(State *self, PyObject *given, PyObject *named) {
    if (!PyTuple_CheckExact(given) || (named != NULL && (!PyDict_CheckExact(named) || PyDict_GET_SIZE(named))))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        PyObject *one = PyTuple_GET_ITEM(given, i);
        if (one != Py_None && !PyObject_TypeCheck(one, self->tensor))
            return 0;
    }
    return 1;
}

static PyObject *following_enter(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count < 3 || count > 4 || self->home != self->training || !usual(self) || !has_room(self) ||
        !is_marked(self, args[0]) || !takes_tensors(self, args[2], count == 4 ? args[3] : NULL))
        return NULL;
    *mine = 1;
    PyObject *code = entering(self, args[0]), *whole = NULL, *ordinal;
    if (code == NULL || (ordinal = Py_TYPE(self->ordinals)->tp_iternext(self->ordinals)) == NULL)
        return NULL;
    int failed = PyList_Append(slot(args[0], self->open), ordinal) < 0 || watch_inputs(self, args[2], ordinal) < 0 ||
                 (whole = with_ordinal(PyLong_AsLongLong(ordinal), code)) == NULL || append(self, whole) < 0;
    Py_DECREF(ordinal);
    Py_XDECREF(whole);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* Watch what a call returns. The START of an inner call opens those around it. */
static int watch_output(State *self, PyObject *node, long long ordinal) {
    PyObject *number = PyObject_CallMethodNoArgs(node, str_sequence_nr), *codes, *code;
    if (number == NULL)
        return -1;
    int done = 0;
    if ((codes = PyDict_GetItemWithError(self->nodes, number)) == NULL) {
        if (PyErr_Occurred())
            done = -1;
        else if (PyDict_GET_SIZE(self->nodes) < self->most)
            done = watch(self, node, number, ordinal | self->start);
        Py_DECREF(number);
        return done;
    }
    Py_DECREF(number);
    long long first = PyLong_AsLongLong(PyList_GET_ITEM(codes, 1));
    if (first < ordinal || first == (ordinal | self->end)) { /* the node was there before the call */
        code = PyLong_FromLongLong(ordinal | self->pass);
        done = code == NULL ? -1 : PyList_Insert(codes, 2, code);
        Py_XDECREF(code);
    } else if ((first & self->kinds) == self->end) { /* which closes all that the END would have closed */
        code = PyLong_FromLongLong(ordinal | self->start);
        done = code == NULL ? -1 : PyList_SetItem(codes, 1, code);
    }
    return done;
}

/* The node that made a call's output, None where a backward will never reach it, or NULL where Python is to look. */
static PyObject *made_by(State *self, PyObject *output, int *mine) {
    if (!PyObject_TypeCheck(output, self->tensor))
        return NULL;
    PyObject *node = PyObject_GetAttr(output, str_grad_fn), *asks;
    if (node != Py_None) {
        *mine = node == NULL;
        return node;
    }
    asks = PyObject_GetAttr(output, str_requires_grad);
    *mine = asks == NULL;
    Py_XDECREF(asks);
    if (asks == Py_False)
        return node;
    Py_DECREF(node);
    return NULL;
}

static PyObject *following_leave(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count != 4 || self->home != self->training || !usual(self) || !is_marked(self, args[0]))
        return NULL;
    PyObject *open = slot(args[0], self->open), *whole;
    Py_ssize_t last = PyList_GET_SIZE(open) - 1, gaps = PyList_GET_SIZE(self->gaps);
    if (last < 0) /* hooked in the middle of this call */
        return NULL;
    long long ordinal = PyLong_AsLongLong(PyList_GET_ITEM(open, last));
    if (gaps && PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(self->gaps, gaps - 1), 0)) > ordinal)
        return NULL;
    PyObject *node = made_by(self, args[3], mine);
    if (node == NULL)
        return NULL;
    *mine = 1;
    int failed = PyList_SetSlice(open, last, last + 1, NULL) < 0 ||
                 (whole = with_ordinal(ordinal, slot(args[0], self->leaving))) == NULL;
    if (!failed) {
        failed = append(self, whole) < 0 || (node != Py_None && watch_output(self, node, ordinal) < 0);
        Py_DECREF(whole);
    }
    Py_DECREF(node);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* A node's prehook: it runs on the thread of the backward pass. */
static PyObject *node_mark(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    PyObject *codes = args[0], *task, *running;
    if (count != 2 || !usual(self) || !has_room(self) || !PyList_CheckExact(codes) || PyList_GET_SIZE(codes) != 2 ||
        PyList_GET_ITEM(codes, 0) != self->serial)
        return NULL;
    if ((task = PyObject_CallNoArgs(self->task)) == NULL || (running = PyObject_GetAttr(self->passes, str_running)) == NULL) {
        Py_XDECREF(task);
        *mine = 1;
        return NULL;
    }
    int same = PyObject_RichCompareBool(task, running, Py_EQ);
    Py_DECREF(task);
    Py_DECREF(running);
    if (!same)
        return NULL;
    *mine = 1;
    if (same < 0 || append(self, PyList_GET_ITEM(codes, 1)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

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
    .tp_name = "autoprof.probes._hooks.Hook",
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

static const struct { const char *name; Fast fast; } paths[] = {
    {"plain_enter", plain_enter}, {"plain_leave", plain_leave}, {"following_enter", following_enter},
    {"following_leave", following_leave}, {"node_mark", node_mark},
};

static PyObject *state_hook(State *self, PyObject *args) {
    const char *path;
    PyObject *slow;
    Fast fast = NULL;
    if (!PyArg_ParseTuple(args, "sO:hook", &path, &slow))
        return NULL;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!strcmp(paths[i].name, path))
            fast = paths[i].fast;
    if (fast == NULL)
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

static PyObject *state_begin_step(State *self, PyObject *args) {
    PyObject *serial, *ordinals;
    if (!PyArg_ParseTuple(args, "OO:begin_step", &serial, &ordinals))
        return NULL;
    if (Py_TYPE(ordinals)->tp_iternext == NULL)
        return PyErr_Format(PyExc_TypeError, "ordinals: %R is no iterator", ordinals);
    Py_INCREF(serial);
    Py_XSETREF(self->serial, serial);
    Py_INCREF(ordinals);
    Py_XSETREF(self->ordinals, ordinals);
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
    static char *names[] = {"marked", "tensor", "buffer", "failed", "task", "number", "nodes", "gaps", "passes",
                            "kinds", "full", "most", "home", NULL};
    PyObject *given[9];
    if (!PyArg_ParseTupleAndKeywords(args, named, "O!O!O!OOOO!O!O(LLLL)nnk:State", names, &PyType_Type, &given[0],
                                     &PyType_Type, &given[1], &PyList_Type, &given[2], &given[3], &given[4], &given[5],
                                     &PyDict_Type, &given[6], &PyList_Type, &given[7], &given[8], &self->start,
                                     &self->end, &self->pass, &self->kinds, &self->full, &self->most, &self->home))
        return -1;
    PyTypeObject *marked = (PyTypeObject *)given[0];
    if (find_slot(marked, "entering", &self->entering) < 0 || find_slot(marked, "recomputing", &self->recomputing) < 0 ||
        find_slot(marked, "leaving", &self->leaving) < 0 || find_slot(marked, "open", &self->open) < 0)
        return -1;
    PyObject **kept[] = {(PyObject **)&self->marked, (PyObject **)&self->tensor, &self->buffer, &self->failed,
                         &self->task, &self->number, &self->nodes, &self->gaps, &self->passes};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        Py_INCREF(given[i]);
        Py_XSETREF(*kept[i], given[i]);
    }
    return 0;
}

#define EACH_OBJECT(DO)                                                                                            \
    DO(marked) DO(tensor) DO(buffer) DO(read) DO(failed) DO(task) DO(number) DO(nodes) DO(gaps) DO(passes) DO(mark) \
    DO(serial) DO(ordinals)

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
    {"begin_step", (PyCFunction)state_begin_step, METH_VARARGS, "begin_step(serial, ordinals): take a new step's."},
    {NULL},
};

static PyMemberDef state_members[] = {
    {"mark", T_OBJECT, offsetof(State, mark), 0, "the hook that nodes are given"},
    {NULL},
};

static PyTypeObject StateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "autoprof.probes._hooks.State",
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
static PyObject *show(PyObject *module, PyObject *function) {
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
    .m_name = "autoprof.probes._hooks",
    .m_doc = "The usual path of the hooks, in C.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__hooks(void) {
    str_grad_fn = PyUnicode_InternFromString("grad_fn");
    str_requires_grad = PyUnicode_InternFromString("requires_grad");
    str_sequence_nr = PyUnicode_InternFromString("_sequence_nr");
    str_register_prehook = PyUnicode_InternFromString("register_prehook");
    str_running = PyUnicode_InternFromString("running");
    PyObject *time = PyImport_ImportModule("time"), *module;
    if (time == NULL || (perf_counter_ns = PyObject_GetAttrString(time, "perf_counter_ns")) == NULL)
        return NULL;
    Py_DECREF(time);
    if (PyType_Ready(&StateType) < 0 || PyType_Ready(&HookType) < 0 || (module = PyModule_Create(&definition)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(module, "State", (PyObject *)&StateType) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
