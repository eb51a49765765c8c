/* HookState and PassState: the state of Python objects that hooks read. Python classes derive from both. */

#include "native.h"

static PyObject *hook_state_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    HookState *self = (HookState *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    /* A subclass may skip __init__: hooks find a valid state all the same. */
    self->enter_code = PyLong_FromLong(MARK_ENTER);
    self->recompute_code = PyLong_FromLong(MARK_RECOMPUTE);
    self->leave_code = PyLong_FromLong(MARK_LEAVE);
    self->open_calls = PyList_New(0);
    if (!self->enter_code || !self->recompute_code || !self->leave_code || !self->open_calls)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int set_code(PyObject **field, long long code) {
    PyObject *value = PyLong_FromLongLong(code);
    if (value == NULL)
        return -1;
    Py_XSETREF(*field, value);
    return 0;
}

static int hook_state_init(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"code", NULL};
    HookState *self = (HookState *)op;
    long long code;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L:HookState", names, &code))
        return -1;
    return set_code(&self->enter_code, code | MARK_ENTER) < 0 ||
                   set_code(&self->recompute_code, code | MARK_RECOMPUTE) < 0 ||
                   set_code(&self->leave_code, code | MARK_LEAVE) < 0
               ? -1
               : 0;
}

static int hook_state_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(((HookState *)op)->open_calls);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

/* No tp_clear: a list of integers is part of no cycle. */
static void hook_state_dealloc(PyObject *op) {
    HookState *self = (HookState *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    Py_CLEAR(self->enter_code);
    Py_CLEAR(self->recompute_code);
    Py_CLEAR(self->leave_code);
    Py_CLEAR(self->open_calls);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMemberDef hook_state_members[] = {
    {"enter_code", T_OBJECT_EX, offsetof(HookState, enter_code), READONLY, "code of a mark where a forward begins"},
    {"recompute_code", T_OBJECT_EX, offsetof(HookState, recompute_code), READONLY,
     "code of a mark where a recomputed forward begins"},
    {"leave_code", T_OBJECT_EX, offsetof(HookState, leave_code), READONLY, "code of a mark where a forward ends"},
    {"open_calls", T_OBJECT_EX, offsetof(HookState, open_calls), READONLY,
     "list of the ordinals of open calls on the thread that made the hooks"},
    {NULL},
};

static PyType_Slot hook_state_slots[] = {
    {Py_tp_doc, "HookState(code)\n--\n\nThe codes and the open calls of the object that a module's hooks are bound to."},
    {Py_tp_new, hook_state_new},
    {Py_tp_init, hook_state_init},
    {Py_tp_dealloc, hook_state_dealloc},
    {Py_tp_traverse, hook_state_traverse},
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
