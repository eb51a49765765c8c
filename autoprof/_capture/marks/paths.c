/* What each hook does for the usual call. */

#include "marks.h"

static PyObject *str_grad_fn, *str_requires_grad, *str_sequence_nr, *str_register_prehook, *str_running;

int intern_names(void) {
    str_grad_fn = PyUnicode_InternFromString("grad_fn");
    str_requires_grad = PyUnicode_InternFromString("requires_grad");
    str_sequence_nr = PyUnicode_InternFromString("_sequence_nr");
    str_register_prehook = PyUnicode_InternFromString("register_prehook");
    str_running = PyUnicode_InternFromString("running");
    return str_grad_fn && str_requires_grad && str_sequence_nr && str_register_prehook && str_running ? 0 : -1;
}

/* One mark: a reading and an append. */
static int append(State *self, long long code) {
    long long now = self->host ? now_ns() : -1;
    if (now >= 0)
        return append_ns(self->tape, code, now);
    PyObject *read = self->read, *reading;
    Py_INCREF(read); /* what it calls may have the state renewed */
    reading = PyObject_CallNoArgs(read);
    Py_DECREF(read);
    if (reading == NULL)
        return -1;
    int failed = append_reading(self->tape, code, reading);
    Py_DECREF(reading);
    return failed;
}

/* Whether the mark is one that needs nothing but an append. */
static inline int usual(State *self) {
    return self->on && PyThread_get_thread_ident() == self->training;
}

static inline int has_room(State *self) {
    return self->tape->count < self->full;
}

/* The code of a HookState at this slot. They are integers that fit: kind and index. */
static inline long long code_at(PyObject *owner, Py_ssize_t offset) {
    return PyLong_AsLongLong(slot(owner, offset));
}

/* The code that a HookState is entered with: in a forward, or in a backward pass that computes it again; -1 with an error. */
static long long entering(State *self, PyObject *owner) {
    PyObject *task = PyObject_CallNoArgs(self->task);
    if (task == NULL)
        return -1;
    long long running = PyLong_AsLongLong(task);
    Py_DECREF(task);
    if (running == -1 && PyErr_Occurred())
        return -1;
    return code_at(owner, running == -1 ? self->entering : self->recomputing);
}

static inline int is_marked(State *self, PyObject *owner) {
    return PyObject_TypeCheck(owner, self->marked);
}

static PyObject *plain_enter(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count != 3 || !usual(self) || !has_room(self) || !is_marked(self, args[0]))
        return NULL;
    *mine = 1;
    long long code = entering(self, args[0]);
    if (code < 0 || append(self, code) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *plain_leave(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count != 4 || !self->alone || !usual(self) || !is_marked(self, args[0]))
        return NULL;
    *mine = 1;
    if (append(self, code_at(args[0], self->leaving)) < 0)
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
    Py_INCREF(self->tape->serial);
    PyList_SET_ITEM(codes, 0, self->tape->serial);
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
static int watch_inputs(State *self, PyObject *given, long long ordinal) {
    long long newest = -1, next;
    PyObject *made = PyObject_CallNoArgs(self->number), *gap;
    if (made == NULL)
        return -1;
    next = PyLong_AsLongLong(made);
    Py_DECREF(made);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        PyObject *one = PyTuple_GET_ITEM(given, i);
        if (one != Py_None && watch_input(self, one, ordinal, &newest) < 0)
            return -1;
    }
    if (newest >= next - 1 || PyList_GET_SIZE(self->gaps) >= self->most)
        return 0;
    if ((gap = Py_BuildValue("(LL)", ordinal, next)) == NULL)
        return -1;
    int failed = PyList_Append(self->gaps, gap);
    Py_DECREF(gap);
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
    long long code = entering(self, args[0]);
    if (code < 0)
        return NULL;
    long long ordinal = self->tape->ordinal += self->tape->apart;
    PyObject *kept = PyLong_FromLongLong(ordinal);
    int failed = kept == NULL ? -1 : PyList_Append(slot(args[0], self->open), kept);
    Py_XDECREF(kept);
    if (failed || watch_inputs(self, args[2], ordinal) < 0 || append(self, ordinal | code) < 0)
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

/* The node that made a call's output, None where a backward will never reach it, or NULL where Python is to look. A call
that an exception ends, which may be that of a recursion too deep, returns None. */
static PyObject *made_by(State *self, PyObject *output, int *mine) {
    if (output == Py_None) {
        Py_INCREF(output);
        return output;
    }
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

/* Whether a call inside this one has a gap before it. */
static int gap_after(State *self, long long ordinal) {
    Py_ssize_t count = PyList_GET_SIZE(self->gaps);
    return count && PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(self->gaps, count - 1), 0)) > ordinal;
}

static PyObject *following_leave(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count != 4 || self->home != self->training || !usual(self) || !is_marked(self, args[0]))
        return NULL;
    PyObject *node = made_by(self, args[3], mine);
    if (node == NULL)
        return NULL;
    PyObject *open = slot(args[0], self->open);
    Py_ssize_t last = PyList_GET_SIZE(open) - 1;
    long long ordinal = last < 0 ? 0 : PyLong_AsLongLong(PyList_GET_ITEM(open, last));
    if (last < 0 || gap_after(self, ordinal)) { /* hooked in the middle of this call, or there is more to be watched */
        Py_DECREF(node);
        return NULL;
    }
    *mine = 1;
    int failed = PyList_SetSlice(open, last, last + 1, NULL) < 0 ||
                 append(self, ordinal | code_at(args[0], self->leaving)) < 0 ||
                 (node != Py_None && watch_output(self, node, ordinal) < 0);
    Py_DECREF(node);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* A node's prehook: it runs on the thread of the backward pass. */
static PyObject *node_mark(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    PyObject *codes = args[0], *task, *running;
    if (count != 2 || !usual(self) || !has_room(self) || !PyList_CheckExact(codes) || PyList_GET_SIZE(codes) != 2 ||
        PyList_GET_ITEM(codes, 0) != self->tape->serial)
        return NULL;
    if ((task = PyObject_CallNoArgs(self->task)) == NULL ||
        (running = PyObject_GetAttr(self->passes, str_running)) == NULL) {
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
    if (same < 0 || append(self, PyLong_AsLongLong(PyList_GET_ITEM(codes, 1))) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static const struct {
    const char *name;
    Fast fast;
} paths[] = {
    {"plain_enter", plain_enter},
    {"plain_leave", plain_leave},
    {"following_enter", following_enter},
    {"following_leave", following_leave},
    {"node_mark", node_mark},
    {"look", look},
};

Fast find_path(const char *name) {
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!strcmp(paths[i].name, name))
            return paths[i].fast;
    return NULL;
}
