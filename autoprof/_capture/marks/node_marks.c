/* NodeMark: the prehook of one autograd node, registered without a line of Python.

`node._register_hook_dict(tensor)` has a node call what is in the tensor's `_backward_hooks`. Making such a tensor takes
microseconds, so a context keeps them in a pool of carriers: a tensor, its dict, and the NodeMark in it. A node holds the
dict and nothing else, so a carrier is free again once the dict has as few references as when it was made: after the
graph is gone. A graph that outlives its step keeps its carriers, whose codes stay those of its step. */

#include "native.h"

enum { MAX_CARRIERS = 1 << 16 };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    HookContext *context; /* of nodes; NULL once the session is gone */
    PyObject *codes;      /* list: the step's serial, then codes */
} NodeMark;

typedef struct {
    PyObject *tensor, *hooks; /* hooks: the dict {0: mark} */
    NodeMark *mark;
    Py_ssize_t idle_references;
} carrier;

struct carrier_pool {
    carrier *carriers;
    Py_ssize_t count, capacity, next;
    PyObject *serial; /* the step in which `next` was last set to 0 */
};

/* A node of the open step with one code, in the backward pass that the last mark belonged to. It runs on the thread of
the backward pass. The hook in Python is in probes/backward.py. */
static hook_outcome append_node(HookContext *self, PyObject *codes) {
    long long task;
    if (!is_usual(self) || !has_room(self) || !PyList_CheckExact(codes) || PyList_GET_SIZE(codes) != 2 ||
        PyList_GET_ITEM(codes, 0) != self->buffer->serial)
        return HOOK_FALLBACK;
    if (current_graph_task(self->module, &task) < 0)
        return HOOK_FAILED;
    if (task != self->passes->running || self->passes->captures)
        return HOOK_FALLBACK;
    long long code = PyLong_AsLongLong(PyList_GET_ITEM(codes, 1));
    return (code == -1 && PyErr_Occurred()) || append_reading(self, code) < 0 ? HOOK_FAILED : HOOK_DONE;
}

PyObject *mark_node(HookContext *self, PyObject *codes, PyObject *gradients) {
    if (self->fallback == NULL) /* cleared by the garbage collector, with the session it belonged to */
        Py_RETURN_NONE;
    switch (append_node(self, codes)) {
    case HOOK_FALLBACK:
        return PyObject_CallFunctionObjArgs(self->fallback, codes, gradients, NULL);
    case HOOK_FAILED:
        if (report_hook_failure(self->on_error, codes, gradients) < 0)
            return NULL;
        break;
    case HOOK_DONE:
        break;
    }
    Py_RETURN_NONE;
}

static PyObject *node_mark_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *Py_UNUSED(kwnames)) {
    NodeMark *self = (NodeMark *)op;
    if (PyVectorcall_NARGS(nargsf) < 1 || self->context == NULL || self->codes == NULL)
        Py_RETURN_NONE;
    PyObject *context = Py_NewRef(self->context), *codes = Py_NewRef(self->codes);
    PyObject *done = mark_node((HookContext *)context, codes, args[0]);
    Py_DECREF(codes);
    Py_DECREF(context);
    return done;
}

static int add_carrier(HookContext *self, carrier_pool *pool) {
    if (pool->count == pool->capacity) {
        Py_ssize_t capacity = pool->capacity ? 2 * pool->capacity : 64;
        carrier *carriers = PyMem_Realloc(pool->carriers, (size_t)capacity * sizeof *carriers);
        if (carriers == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        pool->carriers = carriers;
        pool->capacity = capacity;
    }
    carrier made = {NULL, PyDict_New(), (NodeMark *)self->module->node_mark_type->tp_alloc(self->module->node_mark_type, 0), 0};
    PyObject *key = PyLong_FromLong(0);
    if (made.mark != NULL) {
        made.mark->vectorcall = node_mark_call;
        made.mark->context = (HookContext *)Py_NewRef(self->node_context);
    }
    if (made.hooks != NULL && made.mark != NULL && key != NULL &&
        PyDict_SetItem(made.hooks, key, (PyObject *)made.mark) == 0)
        made.tensor = PyObject_CallOneArg(self->make_carrier, made.hooks);
    Py_XDECREF(key);
    if (made.tensor == NULL || self->pool != pool) { /* or cleared meanwhile */
        Py_XDECREF(made.tensor);
        Py_XDECREF(made.hooks);
        Py_XDECREF(made.mark);
        return -1;
    }
    made.idle_references = Py_REFCNT(made.hooks);
    pool->carriers[pool->count++] = made;
    return 0;
}

/* Return a free carrier; NULL where there is no room, or with an exception. */
static carrier *take_carrier(HookContext *self) {
    if (self->pool == NULL && (self->pool = PyMem_Calloc(1, sizeof *self->pool)) == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    carrier_pool *pool = self->pool;
    if (pool->serial != self->buffer->serial) {
        Py_XSETREF(pool->serial, Py_NewRef(self->buffer->serial));
        pool->next = 0;
    }
    while (pool->next < pool->count) {
        carrier *found = pool->carriers + pool->next++;
        if (Py_REFCNT(found->hooks) == found->idle_references)
            return found;
    }
    if (pool->count >= MAX_CARRIERS || add_carrier(self, pool) < 0)
        return NULL;
    return pool->carriers + pool->next++;
}

/* Have a node call the context's hook with these codes when it runs. */
int node_marks_register(HookContext *self, PyObject *node, PyObject *codes) {
    PyObject *done = NULL;
    if (self->make_carrier != NULL) {
        carrier *found = take_carrier(self);
        if (found == NULL && PyErr_Occurred())
            return -1;
        if (found != NULL) {
            Py_XSETREF(found->mark->codes, Py_NewRef(codes));
            done = PyObject_CallMethodOneArg(node, self->module->str_register_hook_dict, found->tensor);
            Py_XDECREF(done);
            return done == NULL ? -1 : 0;
        }
    }
    PyObject *hook = PyMethod_New((PyObject *)self->node_context, codes);
    if (hook != NULL)
        done = PyObject_CallMethodOneArg(node, self->module->str_register_prehook, hook);
    Py_XDECREF(hook);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int node_marks_traverse(HookContext *self, visitproc visit, void *arg) {
    carrier_pool *pool = self->pool;
    for (Py_ssize_t i = 0; pool != NULL && i < pool->count; i++) {
        Py_VISIT(pool->carriers[i].tensor);
        Py_VISIT(pool->carriers[i].hooks);
        Py_VISIT((PyObject *)pool->carriers[i].mark);
    }
    return 0;
}

void node_marks_clear(HookContext *self) {
    carrier_pool *pool = self->pool;
    if (pool == NULL)
        return;
    self->pool = NULL;
    for (Py_ssize_t i = 0; i < pool->count; i++) {
        Py_CLEAR(pool->carriers[i].mark->context); /* a node that still holds the dict marks nothing any more */
        Py_DECREF(pool->carriers[i].tensor);
        Py_DECREF(pool->carriers[i].hooks);
        Py_DECREF(pool->carriers[i].mark);
    }
    Py_XDECREF(pool->serial);
    PyMem_Free(pool->carriers);
    PyMem_Free(pool);
}

static int node_mark_traverse(PyObject *op, visitproc visit, void *arg) {
    NodeMark *self = (NodeMark *)op;
    Py_VISIT(self->context);
    Py_VISIT(self->codes);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int node_mark_clear(PyObject *op) {
    NodeMark *self = (NodeMark *)op;
    Py_CLEAR(self->context);
    Py_CLEAR(self->codes);
    return 0;
}

static void node_mark_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    node_mark_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NodeMark, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The hook of one autograd node."},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, node_mark_dealloc},
    {Py_tp_traverse, node_mark_traverse},
    {Py_tp_clear, node_mark_clear},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec node_mark_spec = {
    .name = "autoprof._capture.marks._c.NodeMark",
    .basicsize = sizeof(NodeMark),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
