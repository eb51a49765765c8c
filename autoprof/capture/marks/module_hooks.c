/* The usual case of the hooks before and after a module's forward. The hooks in Python are in hooks/module_hooks.py. */

#include "native.h"

#include <limits.h>

/* Whether calls of modules are not marked; a context that was cleared hands over to Python. */
static inline int is_idle(HookContext *self) {
    return self->buffer != NULL && self->buffer->idle;
}

/* The outcome of a call that is not the usual one: on another thread than the training thread it is passed over, unless it
is a part of a backward pass or a call of a replica. */
static hook_outcome pass_over(HookContext *self, marked_call *call) {
    long long task;
    if (is_idle(self))
        return HOOK_DONE;
    if (self->buffer == NULL || call->is_replica || PyThread_get_thread_ident() == self->training_thread)
        return HOOK_FALLBACK;
    if (current_graph_task(self->module, &task) < 0)
        return HOOK_FAILED;
    if (task != -1)
        return HOOK_FALLBACK;
    self->buffer->skipped++;
    return HOOK_DONE;
}

/* Get the number of a node; that of a leaf's is 2**64 - 1. */
static int number_of(HookContext *self, PyObject *node, unsigned long long *number) {
    PyObject *value = PyObject_CallMethodNoArgs(node, self->module->str__sequence_nr);
    if (value == NULL)
        return -1;
    *number = PyLong_AsUnsignedLongLongMask(value);
    Py_DECREF(value);
    return *number == (unsigned long long)-1 && PyErr_Occurred() ? -1 : 0;
}

/* Have the node that made an input mark the end of the call's backward. The first call that a node enters decides. */
static int track_input(HookContext *self, PyObject *tensor, long long ordinal, long long *newest) {
    unsigned long long number;
    PyObject *node = PyObject_GetAttr(tensor, self->module->str_grad_fn);
    if (node == NULL)
        return -1;
    int failed = 0;
    if (node != Py_None) {
        failed = number_of(self, node, &number) < 0 || node_marks_track_input(self->nodes, number, node, ordinal) < 0;
        long long made = number > LLONG_MAX ? LLONG_MAX : (long long)number;
        if (!failed && made > *newest)
            *newest = made;
    }
    Py_DECREF(node);
    return failed ? -1 : 0;
}

/* Track the nodes that made the inputs, and note a gap if a newer node exists than these. */
static int track_inputs(HookContext *self, PyObject *inputs, long long ordinal) {
    long long next, newest = -1;
    if (next_node_number(self->module, &next) < 0)
        return -1;
    if (PyTuple_GET_SIZE(inputs) == 1 &&
        node_marks_continues(self->nodes, PyTuple_GET_ITEM(inputs, 0), (unsigned long long)next))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        PyObject *tensor = PyTuple_GET_ITEM(inputs, i);
        if (tensor != Py_None && track_input(self, tensor, ordinal, &newest) < 0)
            return -1;
    }
    if (newest >= next - 1 || node_marks_has_newest(self->nodes, (unsigned long long)next) ||
        PyList_GET_SIZE(self->gaps) >= self->buffer->limit)
        return 0;
    PyObject *gap = Py_BuildValue("(LL)", ordinal, next);
    if (gap == NULL)
        return -1;
    int failed = PyList_Append(self->gaps, gap);
    Py_DECREF(gap);
    return failed;
}

/* Whether a call takes nothing but tensors and None. Other inputs are searched in Python. */
static int takes_tensors(HookContext *self, PyObject *inputs, PyObject *keywords) {
    if (!PyTuple_CheckExact(inputs) ||
        (keywords != NULL && (!PyDict_CheckExact(keywords) || PyDict_GET_SIZE(keywords) > 0)))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        PyObject *input = PyTuple_GET_ITEM(inputs, i);
        if (input != Py_None && !PyObject_TypeCheck(input, self->module->tensor_type))
            return 0;
    }
    return 1;
}

hook_outcome enter_call(HookContext *self, marked_call *call, PyObject *args, PyObject *kwargs) {
    int tracks = self->nodes != NULL;
    long long task;
    if (is_idle(self) || !is_usual(self) || !has_room(self) ||
        (tracks && !takes_tensors(self, args, kwargs)))
        return pass_over(self, call);
    if (current_graph_task(self->module, &task) < 0)
        return HOOK_FAILED;
    if (tracks) {
        call->ordinal = self->buffer->ordinal += ORDINAL_STRIDE;
        if (track_inputs(self, args, call->ordinal) < 0)
            return HOOK_FAILED;
    }
    long long kind = task == -1 ? MARK_ENTER : MARK_RECOMPUTE;
    return append_reading(self, call->ordinal | call->code | kind) < 0 ? HOOK_FAILED : HOOK_DONE;
}

/* Get the node that made the output: None if there is none. A call that ends by an exception returns None. Python
searches other values than tensors. */
static hook_outcome output_node(HookContext *self, PyObject *output, PyObject **node) {
    if (output == Py_None) {
        *node = Py_NewRef(Py_None);
        return HOOK_DONE;
    }
    if (!PyObject_TypeCheck(output, self->module->tensor_type))
        return HOOK_FALLBACK;
    *node = PyObject_GetAttr(output, self->module->str_grad_fn);
    return *node == NULL ? HOOK_FAILED : HOOK_DONE;
}

/* Whether a call inside this one has a gap before it. */
static int has_inner_gap(HookContext *self, long long ordinal) {
    Py_ssize_t count = PyList_GET_SIZE(self->gaps);
    return count > 0 && PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(self->gaps, count - 1), 0)) > ordinal;
}

/* Mark the end of a call. */
static int end_call(HookContext *self, marked_call *call) {
    return append_reading(self, call->ordinal | call->code | MARK_LEAVE);
}

static hook_outcome leave_tracked(HookContext *self, marked_call *call, PyObject *output) {
    long long ordinal = call->ordinal;
    if (ordinal == 0) /* its begin was not marked */
        return HOOK_DONE;
    if (has_inner_gap(self, ordinal))
        return HOOK_FALLBACK;
    PyObject *node;
    hook_outcome outcome = output_node(self, output, &node);
    if (outcome == HOOK_FALLBACK)
        return HOOK_FALLBACK;
    if (outcome == HOOK_FAILED) { /* an attribute of the output raised: the call is over all the same, as it is in Python */
        PyObject *error = take_exception();
        if (end_call(self, call) < 0 && !PyErr_ExceptionMatches(PyExc_Exception))
            Py_DECREF(error); /* a Ctrl-C counts */
        else
            set_exception(error);
        return HOOK_FAILED;
    }
    unsigned long long number = 0;
    int failed = end_call(self, call) < 0 ||
                 (node != Py_None && (number_of(self, node, &number) < 0 ||
                                      node_marks_track_output(self->nodes, number, node, ordinal) < 0));
    if (node != Py_None && !failed)
        node_marks_remember_output(self->nodes, output, number);
    Py_DECREF(node);
    return failed ? HOOK_FAILED : HOOK_DONE;
}

hook_outcome leave_call(HookContext *self, marked_call *call, PyObject *output) {
    if (is_idle(self) || !is_usual(self) || !has_room(self))
        return pass_over(self, call);
    if (self->nodes != NULL)
        return leave_tracked(self, call, output);
    return end_call(self, call) < 0 ? HOOK_FAILED : HOOK_DONE;
}
