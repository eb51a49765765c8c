/* NodeMarks: the autograd nodes of the open step that mark a backward pass. NodeMark: the prehook of one of them.

`node._register_hook_dict(tensor)` has a node call the hooks in the tensor's `_backward_hooks`, without a line of Python.
Making such a tensor takes microseconds, so they are kept as carriers: a tensor, its dict, and the NodeMark in it. A node
holds the dict and nothing else, so a carrier is free again once the dict has as few references as when it was made:
after the graph is gone. A graph that outlives its step keeps its carriers, whose codes stay those of its step.

Nodes are found by their sequence numbers. These are consecutive, so that nodes made one after another lie side by side;
a slot belongs to the open step if its generation is that of the table, so that nothing is cleared. */

#include "native.h"

enum { MIN_NODE_SLOTS = 256 };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    HookContext *context; /* of nodes; NULL once the session is gone */
    long long serial;     /* of the step in which the node was made known */
    long long code;       /* BACKWARD_END or BACKWARD_START */
} NodeMark;

typedef struct {
    PyObject *tensor, *hooks; /* hooks: the dict {0: mark} */
    NodeMark *mark;
    Py_ssize_t idle_references;
} carrier;

typedef struct {
    unsigned long long number;
    NodeMark *mark; /* borrowed from its carrier, which serves no other node of the same step */
    long long generation;
} node_slot;

struct NodeMarks {
    PyObject_HEAD
    HookContext *context;   /* of nodes; NULL once cleared */
    PyObject *make_carrier; /* makes the tensor of a carrier from its dict */
    carrier *carriers;
    Py_ssize_t count, capacity, next; /* carriers before `next` have been looked at in this step */
    node_slot *slots;
    size_t slot_count; /* a power of two, or 0 */
    Py_ssize_t used;
    long long generation;
    void *last_output; /* the last call's output, which may be gone, and the number of its node */
    unsigned long long last_number;
};

/* The mark of one node. It runs on the thread of the backward pass; the hook in Python is in hooks/backward.py. */
static hook_outcome append_node(HookContext *context, NodeMark *mark) {
    long long task;
    if (!is_appending(context) || !has_room(context) || mark->serial != context->buffer->serial)
        return HOOK_FALLBACK;
    if (current_graph_task(context->module, &task) < 0)
        return HOOK_FAILED;
    if (task != context->buffer->running)
        return HOOK_FALLBACK;
    return append_reading(context, mark->code) < 0 ? HOOK_FAILED : HOOK_DONE;
}

static PyObject *node_mark_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *Py_UNUSED(kwnames)) {
    NodeMark *self = (NodeMark *)op;
    HookContext *context = self->context;
    if (PyVectorcall_NARGS(nargsf) < 1 || context == NULL || context->fallback == NULL) /* the session is gone */
        Py_RETURN_NONE;
    PyObject *done = NULL;
    Py_INCREF(context); /* a reading in Python may run anything */
    Py_INCREF(op);
    hook_outcome outcome = append_node(context, self);
    if (outcome == HOOK_FALLBACK) {
        done = PyObject_CallFunctionObjArgs(context->fallback, op, args[0], NULL);
        if (done == Py_True) { /* it has begun the pass, whose first node may be a usual case now */
            Py_CLEAR(done);
            outcome = append_node(context, self);
            if (outcome == HOOK_FALLBACK)
                done = PyObject_CallFunctionObjArgs(context->fallback, op, args[0], NULL);
        }
    }
    if (outcome == HOOK_DONE || (outcome == HOOK_FAILED && report_hook_failure(context->on_error, op, args[0]) == 0))
        done = Py_NewRef(Py_None);
    Py_DECREF(op);
    Py_DECREF(context);
    return done;
}

#define NODE_MARK_FIELDS(DO) DO(context)
DEFINE_COLLECTION(NodeMark, node_mark, NODE_MARK_FIELDS)

static PyMemberDef mark_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NodeMark, vectorcall), READONLY, NULL},
    {"serial", T_LONGLONG, offsetof(NodeMark, serial), READONLY, "number of the step in which the node was made known"},
    {"code", T_LONGLONG, offsetof(NodeMark, code), READONLY, "the code that the node marks"},
    {NULL},
};

static PyType_Slot mark_slots[] = {
    {Py_tp_doc, "The prehook of one autograd node."},
    {Py_tp_call, PyVectorcall_Call},
    COLLECTION_SLOTS(node_mark),
    {Py_tp_members, mark_members},
    {0, NULL},
};

DEFINE_SPEC(NodeMark, node_mark, mark_slots, Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION);

int set_traced_call(PyTypeObject *type, PyObject *function) {
    int failed = PyDict_SetItemString(type->tp_dict, "__call__", function); /* by setattr, calls would become Python's */
    PyType_Modified(type);
    return failed;
}

/* The carriers. */

static void drop_carrier(carrier *dropped) {
    Py_XDECREF(dropped->tensor);
    Py_XDECREF(dropped->hooks);
    Py_XDECREF(dropped->mark);
}

static int make_carrier(NodeMarks *self, carrier *made) {
    PyTypeObject *type = self->context->module->node_mark_type;
    PyObject *key = PyLong_FromLong(0);
    *made = (carrier){NULL, PyDict_New(), (NodeMark *)type->tp_alloc(type, 0), 0};
    if (made->mark != NULL) {
        made->mark->vectorcall = node_mark_call;
        made->mark->context = (HookContext *)Py_NewRef(self->context);
    }
    if (made->hooks != NULL && made->mark != NULL && key != NULL &&
        PyDict_SetItem(made->hooks, key, (PyObject *)made->mark) == 0)
        made->tensor = PyObject_CallOneArg(self->make_carrier, made->hooks);
    Py_XDECREF(key);
    if (made->tensor == NULL) {
        drop_carrier(made);
        return -1;
    }
    made->idle_references = Py_REFCNT(made->hooks);
    return 0;
}

/* Get a free carrier, with references of its own. */
static int take_carrier(NodeMarks *self, carrier *taken) {
    while (self->next < self->count) {
        carrier *found = self->carriers + self->next++;
        if (Py_REFCNT(found->hooks) == found->idle_references) {
            *taken = *found;
            goto keep;
        }
    }
    if (make_carrier(self, taken) < 0)
        return -1;
    if (self->count == self->capacity) {
        Py_ssize_t capacity = self->capacity ? 2 * self->capacity : 64;
        carrier *carriers = PyMem_Realloc(self->carriers, (size_t)capacity * sizeof *carriers);
        if (carriers == NULL) {
            drop_carrier(taken);
            PyErr_NoMemory();
            return -1;
        }
        self->carriers = carriers;
        self->capacity = capacity;
    }
    self->carriers[self->count++] = *taken;
    self->next = self->count;
keep:
    Py_INCREF(taken->tensor);
    Py_INCREF(taken->hooks);
    Py_INCREF(taken->mark);
    return 0;
}

/* The table. */

static node_slot *place_of(NodeMarks *self, unsigned long long number) {
    size_t mask = self->slot_count - 1, at = (size_t)(number ^ number >> 48) & mask;
    while (self->slots[at].generation == self->generation && self->slots[at].number != number)
        at = (at + 1) & mask;
    return self->slots + at;
}

static NodeMark *find_mark(NodeMarks *self, unsigned long long number) {
    if (self->used == 0)
        return NULL;
    node_slot *found = place_of(self, number);
    return found->generation == self->generation ? found->mark : NULL;
}

static int insert_mark(NodeMarks *self, unsigned long long number, NodeMark *mark) {
    if ((size_t)(2 * (self->used + 1)) > self->slot_count) {
        node_slot *before = self->slots;
        size_t count = self->slot_count, larger = count ? 2 * count : MIN_NODE_SLOTS;
        node_slot *slots = PyMem_Calloc(larger, sizeof *slots);
        if (slots == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->slots = slots;
        self->slot_count = larger;
        for (size_t i = 0; i < count; i++)
            if (before[i].generation == self->generation)
                *place_of(self, before[i].number) = before[i];
        PyMem_Free(before);
    }
    *place_of(self, number) = (node_slot){number, mark, self->generation};
    self->used++;
    return 0;
}

/* Have a node mark this code when it runs. */
static int add_mark(NodeMarks *self, unsigned long long number, PyObject *node, long long code) {
    carrier taken;
    if (self->context == NULL || self->context->buffer == NULL || self->used >= self->context->buffer->limit)
        return 0;
    if (take_carrier(self, &taken) < 0)
        return -1;
    taken.mark->serial = self->context->buffer->serial;
    taken.mark->code = code;
    PyObject *done = NULL;
    if (insert_mark(self, number, taken.mark) == 0)
        done = PyObject_CallMethodOneArg(node, self->context->module->str__register_hook_dict, taken.tensor);
    drop_carrier(&taken);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int node_marks_track_input(NodeMarks *self, unsigned long long number, PyObject *node, long long ordinal) {
    return find_mark(self, number) != NULL ? 0 : add_mark(self, number, node, ordinal | MARK_BACKWARD_END);
}

/* Whether the newest node has a mark. Then the backward of a call that begins now is over at that mark, if not earlier. */
int node_marks_has_newest(NodeMarks *self, unsigned long long next_number) {
    return find_mark(self, next_number - 1) != NULL;
}

/* The same of a call whose input is the last output, for less: no node was made since, so that is the input's node. Where
the output is gone and another tensor has its place, that one's node is older, and the newest node marks the end. */
int node_marks_continues(NodeMarks *self, PyObject *input, unsigned long long next_number) {
    return input == self->last_output && next_number == self->last_number + 1;
}

void node_marks_remember_output(NodeMarks *self, PyObject *output, unsigned long long number) {
    self->last_output = output;
    self->last_number = number;
}

int node_marks_track_output(NodeMarks *self, unsigned long long number, PyObject *node, long long ordinal) {
    NodeMark *mark = find_mark(self, number);
    if (mark == NULL)
        return add_mark(self, number, node, ordinal | MARK_BACKWARD_START);
    /* The BACKWARD_START of an inner call opens the calls around it; in place of the BACKWARD_END of an inner one it
    closes all that that would have closed. A call that returns its input has no backward. */
    if (mark->code >= ordinal + ORDINAL_STRIDE && (mark->code & KIND_MASK) == MARK_BACKWARD_END)
        mark->code = ordinal | MARK_BACKWARD_START;
    return 0;
}

static PyObject *track(PyObject *op, PyObject *args,
                       int (*track_node)(NodeMarks *, unsigned long long, PyObject *, long long)) {
    unsigned long long number;
    long long ordinal;
    PyObject *node;
    if (!PyArg_ParseTuple(args, "KOL", &number, &node, &ordinal) || track_node((NodeMarks *)op, number, node, ordinal) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *node_marks_input(PyObject *op, PyObject *args) {
    return track(op, args, node_marks_track_input);
}

static PyObject *node_marks_output(PyObject *op, PyObject *args) {
    return track(op, args, node_marks_track_output);
}

static int node_marks_contains(PyObject *op, PyObject *number) {
    unsigned long long value = PyLong_AsUnsignedLongLongMask(number);
    if (value == (unsigned long long)-1 && PyErr_Occurred())
        return -1;
    return find_mark((NodeMarks *)op, value) != NULL;
}

static Py_ssize_t node_marks_length(PyObject *op) {
    return ((NodeMarks *)op)->used;
}

static PyObject *node_marks_forget(PyObject *op, PyObject *Py_UNUSED(none)) {
    NodeMarks *self = (NodeMarks *)op;
    self->generation++;
    self->used = self->next = 0;
    self->last_output = NULL;
    Py_RETURN_NONE;
}

static PyObject *node_marks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"context", "make_carrier", NULL};
    module_state *state = state_of_type(type);
    PyObject *context, *make;
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:NodeMarks", names, state->hook_context_type, &context, &make))
        return NULL;
    if (((HookContext *)context)->fallback == NULL) {
        PyErr_SetString(PyExc_TypeError, "context must be one of nodes, with fallback");
        return NULL;
    }
    NodeMarks *self = (NodeMarks *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->context = (HookContext *)Py_NewRef(context);
        self->make_carrier = Py_NewRef(make);
        self->generation = 1;
    }
    return (PyObject *)self;
}

static int node_marks_traverse(PyObject *op, visitproc visit, void *arg) {
    NodeMarks *self = (NodeMarks *)op;
    Py_VISIT(self->context);
    Py_VISIT(self->make_carrier);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->carriers[i].tensor);
        Py_VISIT(self->carriers[i].hooks);
        Py_VISIT((PyObject *)self->carriers[i].mark);
    }
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int node_marks_clear(PyObject *op) {
    NodeMarks *self = (NodeMarks *)op;
    carrier *carriers = self->carriers;
    Py_ssize_t count = self->count;
    PyMem_Free(self->slots);
    self->slots = NULL;
    self->slot_count = 0;
    self->carriers = NULL;
    self->count = self->capacity = self->next = self->used = 0;
    self->last_output = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_CLEAR(carriers[i].mark->context); /* a node that still holds the dict marks nothing any more */
        drop_carrier(carriers + i);
    }
    PyMem_Free(carriers);
    Py_CLEAR(self->context);
    Py_CLEAR(self->make_carrier);
    return 0;
}

DEFINE_DEALLOC(node_marks)

static PyMethodDef methods[] = {
    {"track_input", node_marks_input, METH_VARARGS, "Have the node of an input mark the end of a call's backward."},
    {"track_output", node_marks_output, METH_VARARGS, "Have the node of an output mark its begin."},
    {"clear", node_marks_forget, METH_NOARGS, "Forget the nodes: a new step begins."},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "NodeMarks(context, make_carrier)\n--\n\nThe autograd nodes of the open step that mark a backward pass."},
    {Py_tp_new, node_marks_new},
    COLLECTION_SLOTS(node_marks),
    {Py_tp_methods, methods},
    {Py_sq_length, node_marks_length},
    {Py_sq_contains, node_marks_contains},
    {0, NULL},
};

DEFINE_SPEC(NodeMarks, node_marks, slots, 0);
