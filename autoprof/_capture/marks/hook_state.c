/* HookState and PassState: the state of Python objects that hooks read. Python classes derive from both. */

#include "native.h"

static PyObject *hook_state_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    HookState *self = (HookState *)type->tp_alloc(type, 0);
    if (self != NULL) { /* a subclass may skip __init__: hooks find a valid state all the same */
        self->recompute_code = MARK_RECOMPUTE;
        self->leave_code = MARK_LEAVE;
        self->open_calls = self->few_calls;
        self->open_capacity = FEW_CALLS;
    }
    return (PyObject *)self;
}

static int hook_state_init(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"code", NULL};
    HookState *self = (HookState *)op;
    long long code;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L:HookState", names, &code))
        return -1;
    self->enter_code = code | MARK_ENTER;
    self->recompute_code = code | MARK_RECOMPUTE;
    self->leave_code = code | MARK_LEAVE;
    return 0;
}

int hook_state_open(HookState *self, long long ordinal) {
    if (self->open_count == self->open_capacity) {
        Py_ssize_t capacity = 2 * self->open_capacity;
        long long *kept = self->open_calls == self->few_calls ? NULL : self->open_calls;
        long long *calls = PyMem_Realloc(kept, (size_t)capacity * sizeof *calls);
        if (calls == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        if (kept == NULL)
            memcpy(calls, self->few_calls, sizeof self->few_calls);
        self->open_calls = calls;
        self->open_capacity = capacity;
    }
    self->open_calls[self->open_count++] = ordinal;
    return 0;
}

static PyObject *hook_state_open_call(PyObject *op, PyObject *ordinal) {
    long long value = PyLong_AsLongLong(ordinal);
    if ((value == -1 && PyErr_Occurred()) || hook_state_open((HookState *)op, value) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *hook_state_close_call(PyObject *op, PyObject *Py_UNUSED(none)) {
    HookState *self = (HookState *)op;
    if (self->open_count == 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(self->open_calls[--self->open_count]);
}

static PyObject *hook_state_forget_calls(PyObject *op, PyObject *Py_UNUSED(none)) {
    ((HookState *)op)->open_count = 0;
    Py_RETURN_NONE;
}

static int hook_state_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void hook_state_dealloc(PyObject *op) {
    HookState *self = (HookState *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->open_calls != self->few_calls)
        PyMem_Free(self->open_calls);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef hook_state_methods[] = {
    {"open_call", hook_state_open_call, METH_O, "Add a call, by its ordinal, on the thread that made the hooks."},
    {"close_call", hook_state_close_call, METH_NOARGS, "Remove the call that was added last; return its ordinal, or None."},
    {"forget_calls", hook_state_forget_calls, METH_NOARGS, "Remove all of them."},
    {NULL},
};

static PyMemberDef hook_state_members[] = {
    {"enter_code", T_LONGLONG, offsetof(HookState, enter_code), READONLY, "code of a mark where a forward begins"},
    {"recompute_code", T_LONGLONG, offsetof(HookState, recompute_code), READONLY,
     "code of a mark where a recomputed forward begins"},
    {"leave_code", T_LONGLONG, offsetof(HookState, leave_code), READONLY, "code of a mark where a forward ends"},
    {NULL},
};

static PyType_Slot hook_state_slots[] = {
    {Py_tp_doc, "HookState(code)\n--\n\nThe codes and the open calls of the object that a module's hooks are bound to."},
    {Py_tp_new, hook_state_new},
    {Py_tp_init, hook_state_init},
    {Py_tp_dealloc, hook_state_dealloc},
    {Py_tp_traverse, hook_state_traverse},
    {Py_tp_methods, hook_state_methods},
    {Py_tp_members, hook_state_members},
    {0, NULL},
};

PyType_Spec hook_state_spec = {
    .name = "autoprof._capture.marks._c.HookState",
    .basicsize = sizeof(HookState),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_state_slots,
};

static PyObject *pass_state_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    PassState *self = (PassState *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->running = -1;
    return (PyObject *)self;
}

static int pass_state_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void pass_state_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMemberDef pass_state_members[] = {
    {"running", T_LONGLONG, offsetof(PassState, running), 0, "id of the graph task that the last mark belonged to"},
    {"begun", T_LONGLONG, offsetof(PassState, begun), 0, "passes that torch.autograd.backward began"},
    {"reached", T_LONGLONG, offsetof(PassState, reached), 0, "outermost passes that have reached a hook"},
    {"captures", T_BOOL, offsetof(PassState, captures), 0, "whether nodes may be asked for gradients without being run"},
    {NULL},
};

static PyType_Slot pass_state_slots[] = {
    {Py_tp_doc, "PassState()\n--\n\nThe backward pass that the last mark belonged to."},
    {Py_tp_new, pass_state_new},
    {Py_tp_dealloc, pass_state_dealloc},
    {Py_tp_traverse, pass_state_traverse},
    {Py_tp_members, pass_state_members},
    {0, NULL},
};

PyType_Spec pass_state_spec = {
    .name = "autoprof._capture.marks._c.PassState",
    .basicsize = sizeof(PassState),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = pass_state_slots,
};
