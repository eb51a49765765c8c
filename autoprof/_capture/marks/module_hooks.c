/* The usual case of the hooks before and after a module's forward. The hooks in Python are in probes/hooks.py. */

#include "native.h"

#include <limits.h>

static inline HookState *as_hook_state(HookContext *self, PyObject *owner) {
    return PyObject_TypeCheck(owner, self->module->hook_state_type) ? (HookState *)owner : NULL;
}

/* Whether the call is to be passed over: it is of the module itself (not of a replica on another device), on another
thread than the training thread, and no part of a backward pass. -1 with an exception. */
static int is_passed_over(HookContext *self, HookState *owner, PyObject *called) {
    long long task;
    if (self->buffer == NULL || !self->buffer->skips_other_threads || owner == NULL ||
        PyThread_get_thread_ident() == self->training_thread)
        return 0;
    PyObject *module = PyObject_GetAttr((PyObject *)owner, self->module->str_module);
    Py_XDECREF(module); /* the owner holds it */
    if (module == NULL || current_graph_task(self->module, &task) < 0)
        return -1;
    if (module != called || task != -1)
        return 0;
    self->buffer->skipped++;
    return 1;
}

/* The outcome of a call that is not the usual one. */
static hook_outcome pass_over(HookContext *self, PyObject *owner, PyObject *module) {
    if (self->idle)
        return HOOK_DONE;
    int passed = is_passed_over(self, as_hook_state(self, owner), module);
    return passed < 0 ? HOOK_FAILED : passed ? HOOK_DONE : HOOK_FALLBACK;
}

/* Get the code of a call's first mark: that of a forward, or of one that a backward pass recomputes. */
static int entering_code(HookContext *self, HookState *owner, long long *code) {
    long long task;
    if (current_graph_task(self->module, &task) < 0)
        return -1;
    *code = PyLong_AsLongLong(task == -1 ? owner->enter_code : owner->recompute_code);
    return 0;
}

/* Have a node mark this code when it runs, and remember the code under the node's number. */
static int register_node(HookContext *self, PyObject *node, PyObject *number, long long code) {
    PyObject *value = PyLong_FromLongLong(code), *codes = value == NULL ? NULL : PyList_New(2);
    if (codes == NULL) {
        Py_XDECREF(value);
        return -1;
    }
    PyList_SET_ITEM(codes, 0, Py_NewRef(self->buffer->serial));
    PyList_SET_ITEM(codes, 1, value);
    int failed = PyDict_SetItem(self->nodes, number, codes) < 0 || node_marks_register(self, node, codes) < 0;
    Py_DECREF(codes);
    return failed ? -1 : 0;
}

/* Have the node that made an input mark the end of the call's backward. The first call that a node enters decides. */
static int track_input(HookContext *self, PyObject *tensor, long long ordinal, long long *newest) {
    PyObject *node = PyObject_GetAttr(tensor, self->module->str_grad_fn), *number = NULL;
    if (node == NULL)
        return -1;
    int known = 1, failed = 0;
    if (node != Py_None) {
        number = PyObject_CallMethodNoArgs(node, self->module->str_sequence_nr);
        failed = number == NULL || (known = PyDict_Contains(self->nodes, number)) < 0;
        if (!failed && !known && PyDict_GET_SIZE(self->nodes) < self->buffer->limit)
            failed = register_node(self, node, number, ordinal | MARK_BACKWARD_END) < 0;
        if (!failed) {
            int overflow; /* the number of a leaf's node is 2**64 - 1 */
            long long made = PyLong_AsLongLongAndOverflow(number, &overflow);
            failed = made == -1 && !overflow && PyErr_Occurred();
            if (overflow > 0)
                made = LLONG_MAX;
            if (made > *newest)
                *newest = made;
        }
    }
    Py_XDECREF(number);
    Py_DECREF(node);
    return failed ? -1 : 0;
}

/* Track the nodes that made the inputs, and note a gap if a newer node exists than these. */
static int track_inputs(HookContext *self, PyObject *inputs, long long ordinal) {
    PyObject *number = PyObject_CallNoArgs(self->module->sequence_nr);
    if (number == NULL)
        return -1;
    long long next = PyLong_AsLongLong(number), newest = -1;
    Py_DECREF(number);
    if (next == -1 && PyErr_Occurred())
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        PyObject *tensor = PyTuple_GET_ITEM(inputs, i);
        if (tensor != Py_None && track_input(self, tensor, ordinal, &newest) < 0)
            return -1;
    }
    if (newest >= next - 1 || PyList_GET_SIZE(self->gaps) >= self->buffer->limit)
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

/* Marks of another thread than the one that made the context keep their open calls elsewhere: those are Python's. */
hook_outcome enter_call(HookContext *self, PyObject *module_owner, PyObject *module, PyObject *args, PyObject *kwargs) {
    HookState *owner = as_hook_state(self, module_owner);
    int tracks = self->nodes != NULL;
    long long code, ordinal = 0;
    if (owner == NULL || self->idle || !is_usual(self) || !has_room(self) ||
        (tracks && (self->creator_thread != self->training_thread || !takes_tensors(self, args, kwargs))))
        return pass_over(self, module_owner, module);
    if (entering_code(self, owner, &code) < 0)
        return HOOK_FAILED;
    if (tracks) {
        ordinal = self->buffer->ordinal += ORDINAL_STRIDE;
        PyObject *open_call = PyLong_FromLongLong(ordinal);
        if (open_call == NULL)
            return HOOK_FAILED;
        int failed = PyList_Append(owner->open_calls, open_call);
        Py_DECREF(open_call);
        if (failed || track_inputs(self, args, ordinal) < 0)
            return HOOK_FAILED;
    }
    return append_reading(self, ordinal | code) < 0 ? HOOK_FAILED : HOOK_DONE;
}

/* Have the node that made the output mark the start of the call's backward. */
static int track_output(HookContext *self, PyObject *node, long long ordinal) {
    PyObject *number = PyObject_CallMethodNoArgs(node, self->module->str_sequence_nr);
    if (number == NULL)
        return -1;
    int failed = 0;
    PyObject *codes = PyDict_GetItemWithError(self->nodes, number);
    if (codes == NULL) {
        if (PyErr_Occurred())
            failed = 1;
        else if (PyDict_GET_SIZE(self->nodes) < self->buffer->limit)
            failed = register_node(self, node, number, ordinal | MARK_BACKWARD_START) < 0;
        Py_DECREF(number);
        return failed ? -1 : 0;
    }
    Py_DECREF(number);
    long long first = PyLong_AsLongLong(PyList_GET_ITEM(codes, 1));
    if (first == -1 && PyErr_Occurred())
        return -1;
    int older = first < ordinal || first == (ordinal | MARK_BACKWARD_END); /* the node is older than the call */
    if (!older && (first & KIND_MASK) != MARK_BACKWARD_END)
        return 0; /* the BACKWARD_START of an inner call opens the calls around it */
    PyObject *code = PyLong_FromLongLong(ordinal | (older ? MARK_PASS_THROUGH : MARK_BACKWARD_START));
    if (code == NULL)
        return -1;
    if (older) {
        failed = PyList_Insert(codes, 2, code);
        Py_DECREF(code);
    } else /* it closes all that the BACKWARD_END would have closed */
        failed = PyList_SetItem(codes, 1, code);
    return failed;
}

/* Get the node that made the output: None if no backward pass will reach it. A call that ends by an exception returns
None. Python searches other values than tensors, and tensors that need a gradient and have no node. */
static hook_outcome output_node(HookContext *self, PyObject *output, PyObject **node) {
    if (output == Py_None) {
        *node = Py_NewRef(Py_None);
        return HOOK_DONE;
    }
    if (!PyObject_TypeCheck(output, self->module->tensor_type))
        return HOOK_FALLBACK;
    if ((*node = PyObject_GetAttr(output, self->module->str_grad_fn)) == NULL)
        return HOOK_FAILED;
    if (*node != Py_None)
        return HOOK_DONE;
    PyObject *requires_grad = PyObject_GetAttr(output, self->module->str_requires_grad);
    if (requires_grad == Py_False) {
        Py_DECREF(requires_grad);
        return HOOK_DONE;
    }
    Py_CLEAR(*node);
    if (requires_grad == NULL)
        return HOOK_FAILED;
    Py_DECREF(requires_grad);
    return HOOK_FALLBACK;
}

/* Whether a call inside this one has a gap before it; -1 with an exception. */
static int has_inner_gap(HookContext *self, long long ordinal) {
    Py_ssize_t count = PyList_GET_SIZE(self->gaps);
    if (count == 0)
        return 0;
    PyObject *gap = PyList_GET_ITEM(self->gaps, count - 1);
    if (!PyTuple_CheckExact(gap) || PyTuple_GET_SIZE(gap) != 2) {
        PyErr_SetString(PyExc_TypeError, "a gap must be a tuple (ordinal, number)");
        return -1;
    }
    long long last = PyLong_AsLongLong(PyTuple_GET_ITEM(gap, 0));
    return last == -1 && PyErr_Occurred() ? -1 : last > ordinal;
}

/* Remove the last open call and mark its end. */
static int end_call(HookContext *self, HookState *owner, Py_ssize_t last, long long ordinal) {
    long long code = PyLong_AsLongLong(owner->leave_code);
    return PyList_SetSlice(owner->open_calls, last, last + 1, NULL) < 0 || append_reading(self, ordinal | code) < 0
               ? -1
               : 0;
}

static hook_outcome leave_tracked(HookContext *self, HookState *owner, PyObject *output) {
    Py_ssize_t last = PyList_GET_SIZE(owner->open_calls) - 1;
    if (last < 0) /* hooked in the middle of this call */
        return HOOK_FALLBACK;
    long long ordinal = PyLong_AsLongLong(PyList_GET_ITEM(owner->open_calls, last));
    if (ordinal == -1 && PyErr_Occurred())
        return HOOK_FAILED;
    int inner_gap = has_inner_gap(self, ordinal);
    if (inner_gap)
        return inner_gap < 0 ? HOOK_FAILED : HOOK_FALLBACK;
    PyObject *node;
    hook_outcome outcome = output_node(self, output, &node);
    if (outcome == HOOK_FALLBACK)
        return HOOK_FALLBACK;
    if (outcome == HOOK_FAILED) { /* an attribute of the output raised: the call is over all the same, as it is in Python */
        PyObject *error = take_exception();
        if (end_call(self, owner, last, ordinal) < 0 && PyErr_GivenExceptionMatches(error, PyExc_Exception)) {
            PyObject *later = take_exception();
            PyException_SetContext(later, error); /* consumes it: handle_owner_failure looks at both */
            error = later;
        }
        set_exception(error); /* in place of one that may be set */
        return HOOK_FAILED;
    }
    int failed = end_call(self, owner, last, ordinal) < 0 || (node != Py_None && track_output(self, node, ordinal) < 0);
    Py_DECREF(node);
    return failed ? HOOK_FAILED : HOOK_DONE;
}

hook_outcome leave_call(HookContext *self, PyObject *module_owner, PyObject *module, PyObject *output) {
    HookState *owner = as_hook_state(self, module_owner);
    int tracks = self->nodes != NULL;
    if (owner == NULL || self->idle || !is_usual(self) ||
        (tracks ? self->creator_thread != self->training_thread : !self->single_thread))
        return pass_over(self, module_owner, module);
    if (tracks)
        return leave_tracked(self, owner, output);
    return append_reading(self, PyLong_AsLongLong(owner->leave_code)) < 0 ? HOOK_FAILED : HOOK_DONE;
}
