/* The look at what the model is called with: is it as usual? */

#include "marks.h"

static PyObject *str_shape, *str_dtype, *str_training;

int intern_looks(void) {
    return (str_shape = PyUnicode_InternFromString("shape")) == NULL ||
                   (str_dtype = PyUnicode_InternFromString("dtype")) == NULL ||
                   (str_training = PyUnicode_InternFromString("training")) == NULL
               ? -1
               : 0;
}

/* Compare something that was made for it. Whatever goes wrong is for Python to find out. */
static int is(PyObject *made, PyObject *known, int (*same)(PyObject *, PyObject *)) {
    int found = made != NULL && same(made, known);
    Py_XDECREF(made);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return found;
}

static int identical(PyObject *one, PyObject *other) {
    return one == other;
}

static int equal(PyObject *one, PyObject *other) {
    return PyObject_RichCompareBool(one, other, Py_EQ) == 1;
}

static int outside_backward(PyObject *task, PyObject *Py_UNUSED(none)) {
    return PyLong_AsLongLong(task) == -1;
}

/* Note a call with one tensor of the shape, the type and the modes of the last one: `usual` is number, shape, dtype,
whether the model trains, and (gradients, autocast). */
PyObject *look(State *self, PyObject *const *args, Py_ssize_t count, int *mine) {
    if (count != 4 || Py_TYPE(args[0]) != self->marked || slot(args[0], self->attached) != Py_True ||
        slot(args[0], self->after) != Py_None || !PyTuple_CheckExact(args[2]) || PyTuple_GET_SIZE(args[2]) != 1 ||
        !PyDict_CheckExact(args[3]) || PyDict_GET_SIZE(args[3]))
        return NULL;
    PyObject *usual = slot(args[0], self->usual), *tensor = PyTuple_GET_ITEM(args[2], 0);
    if (!PyTuple_Check(usual) || !PyObject_TypeCheck(tensor, self->tensor))
        return NULL;
    PyObject *modes = PyTuple_GET_ITEM(usual, 4);
    if (PyTuple_GET_ITEM(modes, 1) != Py_False)
        return NULL;
    long long began = now_ns();
    Py_INCREF(usual); /* a tensor's or a module's attributes may be computed, by whatever code */
    int found = began >= 0 && is(PyObject_CallNoArgs(self->task), NULL, outside_backward) &&
                is(PyObject_GetAttr(tensor, str_shape), PyTuple_GET_ITEM(usual, 1), equal) &&
                is(PyObject_GetAttr(tensor, str_dtype), PyTuple_GET_ITEM(usual, 2), identical) &&
                is(PyObject_GetAttr(args[1], str_training), PyTuple_GET_ITEM(usual, 3), identical) &&
                is(PyObject_CallNoArgs(self->graded), PyTuple_GET_ITEM(modes, 0), identical) &&
                is(PyObject_CallNoArgs(self->autocast), Py_False, identical);
    *mine = found;
    int failed = found && PyList_Append(slot(args[0], self->met), PyTuple_GET_ITEM(usual, 0)) < 0;
    Py_DECREF(usual);
    if (!found || failed)
        return NULL;
    PyObject **spent = (PyObject **)((char *)args[0] + self->spent);
    PyObject *sum = PyLong_FromLongLong(PyLong_AsLongLong(*spent) + now_ns() - began);
    if (sum == NULL)
        return NULL;
    Py_SETREF(*spent, sum);
    Py_RETURN_NONE;
}
