/* CallTable: the modules whose calls are marked. CallSite: one of them. CallEntry: the functions around its calls.

The table intercepts the calls of all modules by the vectorcall of the function `nn.Module._wrapped_call_impl`
(hooks/call_sites.py). The function, its code and the classes of modules stay as they are, so that no guard of a compiled
graph and no program sees a difference. A call of a module that has no site goes on to the function. */

#include "native.h"

typedef struct {
    PyObject_HEAD
    module_state *state; /* borrowed: the type of this object holds the module */
    PyObject *sites;     /* dict: the sites by the addresses of their modules, whose weak references remove them */
} CallTable;

/* The functions called around the calls of a module. `owner` is the first argument of each function. */
typedef struct {
    PyObject_HEAD
    PyObject *owner;
    HookContext *context;     /* the usual case in C, or NULL */
    PyObject *enter, *leave;  /* in Python: enter(owner, module, args, kwargs) returns the last argument of
                                 leave(owner, module, args, kwargs, output, call), which is an ordinal after C */
    PyObject *on_error;       /* on_error(owner, module, error) */
    long long code;           /* the shifted index of the label of the module's marks */
} CallEntry;

typedef struct {
    PyObject_HEAD
    module_state *state;
    PyObject *reference; /* weak, to the module */
    PyObject *source;    /* the site whose entries are called here, where this is a replica or a wrapper; or NULL */
    PyObject *before;    /* tuple of functions of the module, called before its entries are looked up */
    PyObject *entries;   /* tuple of CallEntry, outermost first */
    char wraps;          /* whether the module of `source` runs inside this call */
    int inside;          /* calls of wrappers around this module that are running: it is not marked in them */
} CallSite;

/* The table. */

/* Return the site of a module, borrowed; NULL without an exception where it has none. */
static PyObject *find_site(CallTable *self, PyObject *module) {
    PyObject *address = self->sites == NULL ? NULL : PyLong_FromVoidPtr(module);
    PyObject *site = address == NULL ? NULL : PyDict_GetItemWithError(self->sites, address);
    Py_XDECREF(address);
    return site;
}

/* Remove the site at an address, whose module may be gone. */
static PyObject *remove_site(PyObject *sites, PyObject *address) {
    int known = sites == NULL ? 0 : PyDict_Contains(sites, address);
    if (known < 0 || (known && PyDict_DelItem(sites, address) < 0))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *forget_module(PyObject *key, PyObject *Py_UNUSED(reference)) {
    return remove_site(PyTuple_GET_ITEM(key, 0), PyTuple_GET_ITEM(key, 1));
}

static PyMethodDef forget_method = {"forget_module", forget_module, METH_O, NULL};

static PyObject *reference_to(CallTable *self, PyObject *module) {
    PyObject *key = Py_BuildValue("(ON)", self->sites, PyLong_FromVoidPtr(module));
    PyObject *forget = key == NULL ? NULL : PyCFunction_New(&forget_method, key);
    PyObject *reference = forget == NULL ? NULL : PyWeakref_NewRef(module, forget);
    Py_XDECREF(key);
    Py_XDECREF(forget);
    return reference;
}

static CallSite *make_site(CallTable *self, PyObject *module, PyObject *source) {
    CallSite *site = (CallSite *)self->state->call_site_type->tp_alloc(self->state->call_site_type, 0);
    if (site == NULL)
        return NULL;
    site->state = self->state;
    site->source = Py_XNewRef(source);
    if ((site->reference = reference_to(self, module)) == NULL || (site->entries = PyTuple_New(0)) == NULL ||
        (site->before = PyTuple_New(0)) == NULL)
        Py_CLEAR(site);
    return site;
}

static CallSite *add_site(CallTable *self, PyObject *module, PyObject *source) {
    CallSite *site = make_site(self, module, source);
    PyObject *address = site == NULL ? NULL : PyLong_FromVoidPtr(module);
    if (address == NULL || PyDict_SetItem(self->sites, address, (PyObject *)site) < 0)
        Py_CLEAR(site);
    Py_XDECREF(address);
    return site;
}

static PyObject *call_table_site(PyObject *op, PyObject *module) {
    CallTable *self = (CallTable *)op;
    PyObject *known = find_site(self, module);
    if (known != NULL || PyErr_Occurred())
        return Py_XNewRef(known);
    return (PyObject *)add_site(self, module, NULL);
}

static PyObject *call_table_find(PyObject *op, PyObject *module) {
    PyObject *known = find_site((CallTable *)op, module);
    return known != NULL || PyErr_Occurred() ? Py_XNewRef(known) : Py_NewRef(Py_None);
}

static PyObject *call_table_alias(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"module", "source", "wraps", NULL};
    CallTable *self = (CallTable *)op;
    PyObject *module, *source;
    int wraps;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!$p:alias", names, &module, self->state->call_site_type, &source,
                                     &wraps))
        return NULL;
    CallSite *site = add_site(self, module, source);
    if (site != NULL)
        site->wraps = (char)wraps;
    return (PyObject *)site;
}

static PyObject *call_table_drop(PyObject *op, PyObject *module) {
    PyObject *address = PyLong_FromVoidPtr(module);
    PyObject *done = address == NULL ? NULL : remove_site(((CallTable *)op)->sites, address);
    Py_XDECREF(address);
    return done;
}

static Py_ssize_t call_table_length(PyObject *op) {
    PyObject *sites = ((CallTable *)op)->sites;
    return sites == NULL ? 0 : PyDict_GET_SIZE(sites);
}

static PyObject *call_table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    module_state *state = state_of_type(type);
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, ":CallTable", names))
        return NULL;
    if (state->tensor_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() has not been called");
        return NULL;
    }
    CallTable *self = (CallTable *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->state = state;
    if ((self->sites = PyDict_New()) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* The function whose calls are intercepted, one in a process. */
static struct {
    PyFunctionObject *function; /* NULL while there is none */
    vectorcallfunc original;
    CallTable *table; /* borrowed: a table that goes intercepts no longer */
} intercepted;

static PyObject *call_intercepted(PyObject *function, PyObject *const *args, size_t count, PyObject *names);

static void set_vectorcall(PyFunctionObject *function, vectorcallfunc call) {
#if PY_VERSION_HEX >= 0x030C0000
    PyFunction_SetVectorcall(function, call);
#else
    function->vectorcall = call;
#endif
}

static void intercept_no_longer(void) {
    PyFunctionObject *function = intercepted.function;
    if (function->vectorcall == call_intercepted)
        set_vectorcall(function, intercepted.original);
    intercepted.function = NULL;
    intercepted.table = NULL;
    Py_DECREF(function);
}

static PyObject *call_table_intercept(PyObject *op, PyObject *function) {
    if (function != Py_None && !PyFunction_Check(function))
        return PyErr_Format(PyExc_TypeError, "intercept() takes a function or None, not %R", function);
    if (intercepted.function != NULL && (function != Py_None || intercepted.table == (CallTable *)op))
        intercept_no_longer();
    if (function != Py_None) {
        intercepted.function = (PyFunctionObject *)Py_NewRef(function);
        intercepted.table = (CallTable *)op;
        intercepted.original = intercepted.function->vectorcall;
        set_vectorcall(intercepted.function, call_intercepted);
    }
    Py_RETURN_NONE;
}

static PyObject *call_table_intercepts(PyObject *op, void *Py_UNUSED(context)) {
    int is_ours = intercepted.table == (CallTable *)op && intercepted.function->vectorcall == call_intercepted;
    return PyBool_FromLong(is_ours);
}

static int call_table_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(((CallTable *)op)->sites);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int call_table_clear(PyObject *op) {
    if (intercepted.table == (CallTable *)op)
        intercept_no_longer();
    Py_CLEAR(((CallTable *)op)->sites);
    return 0;
}

DEFINE_DEALLOC(call_table)

static PyMethodDef table_methods[] = {
    {"site", call_table_site, METH_O, "Return the site of a module, a new one where it has none."},
    {"find", call_table_find, METH_O, "Return the site of a module, or None."},
    {"alias", KEYWORDS(call_table_alias), "Give a module the entries of another one's site."},
    {"drop", call_table_drop, METH_O, "Remove the site of a module."},
    {"intercept", call_table_intercept, METH_O,
     "Intercept the calls of a function whose first argument is a module; of none with None."},
    {NULL},
};

static PyGetSetDef table_properties[] = {
    {"intercepts", call_table_intercepts, NULL, "whether calls are intercepted", NULL},
    {NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "CallTable()\n--\n\nThe modules whose calls are marked."},
    {Py_tp_new, call_table_new},
    COLLECTION_SLOTS(call_table),
    {Py_tp_methods, table_methods},
    {Py_tp_getset, table_properties},
    {Py_sq_length, call_table_length},
    {0, NULL},
};

DEFINE_SPEC(CallTable, call_table, table_slots, 0);

/* The entries. */

/* The arguments of a call of a function, as vectorcall has them; the first one is the module. */
typedef struct {
    PyObject *function;
    PyObject *const *args;
    size_t count;
    PyObject *names;
} given_call;

/* Call the function itself. */
static PyObject *call_torch(const given_call *given) {
    return intercepted.original(given->function, given->args, given->count, given->names);
}

/* One call of a module, and the calls around it. Hooks get `shown`: the module itself, or the module that it wraps. */
typedef struct {
    CallSite *site, *marked;
    const given_call *given;
    PyObject *entries, *shown, *args, *kwargs; /* kwargs: NULL for none */
} running_call;

static PyObject *keywords_of(running_call *running) {
    return running->kwargs != NULL ? running->kwargs : running->site->state->no_kwargs;
}

/* Mark the begin of a call; `token` is the result of the entry's function in Python, or NULL. */
static int enter_entry(CallEntry *self, running_call *running, marked_call *call, PyObject **token) {
    hook_outcome outcome = HOOK_FALLBACK;
    if (self->context != NULL)
        outcome = enter_call(self->context, call, running->args, running->kwargs);
    if (outcome == HOOK_FAILED)
        return report_hook_failure(self->on_error, self->owner, running->shown);
    if (outcome == HOOK_DONE || self->enter == Py_None)
        return 0;
    *token = PyObject_CallFunctionObjArgs(self->enter, self->owner, running->shown, running->args,
                                          keywords_of(running), NULL);
    if (*token != NULL && self->context != NULL && PyLong_CheckExact(*token))
        call->ordinal = PyLong_AsLongLong(*token);
    return *token == NULL ? -1 : 0;
}

static int leave_entry(CallEntry *self, running_call *running, marked_call *call, PyObject *token, PyObject *output) {
    hook_outcome outcome = self->context == NULL ? HOOK_FALLBACK : leave_call(self->context, call, output);
    if (outcome == HOOK_FAILED)
        return report_hook_failure(self->on_error, self->owner, running->shown);
    if (outcome == HOOK_DONE || self->leave == Py_None)
        return 0;
    PyObject *last = token != NULL ? Py_NewRef(token) : PyLong_FromLongLong(call->ordinal), *done = NULL;
    if (last != NULL)
        done = PyObject_CallFunctionObjArgs(self->leave, self->owner, running->shown, running->args,
                                            keywords_of(running), output, last, NULL);
    Py_XDECREF(last);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *call_entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"owner", "enter", "leave", "context", "on_error", "code", NULL};
    module_state *state = state_of_type(type);
    PyObject *owner, *enter, *leave, *context = Py_None, *on_error = Py_None;
    long long code = 0;
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OOL:CallEntry", names, &owner, &enter, &leave,
                                                      &context, &on_error, &code))
        return NULL;
    if (context != Py_None && !PyObject_TypeCheck(context, state->hook_context_type))
        return PyErr_Format(PyExc_TypeError, "context must be a HookContext or None, not %R", context);
    CallEntry *self = (CallEntry *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->owner = Py_NewRef(owner);
    self->enter = Py_NewRef(enter);
    self->leave = Py_NewRef(leave);
    self->on_error = Py_NewRef(on_error);
    self->code = code;
    self->context = context == Py_None ? NULL : (HookContext *)Py_NewRef(context);
    return (PyObject *)self;
}

#define CALL_ENTRY_FIELDS(DO) DO(owner) DO(context) DO(enter) DO(leave) DO(on_error)
DEFINE_COLLECTION(CallEntry, call_entry, CALL_ENTRY_FIELDS)

/* No tp_clear: sites hold entries, and are cleared; a call that is running relies on its entries being whole. */
static PyType_Slot entry_slots[] = {
    {Py_tp_doc, "CallEntry(owner, enter, leave, context=None, on_error=None, code=0)\n--\n\n"
                "The functions called around the calls of a module, and their usual case in C."},
    {Py_tp_new, call_entry_new},
    {Py_tp_dealloc, call_entry_dealloc},
    {Py_tp_traverse, call_entry_traverse},
    {0, NULL},
};

DEFINE_SPEC(CallEntry, call_entry, entry_slots, 0);

/* The sites. */

static int contains(PyObject *entries, PyObject *entry) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++)
        if (PyTuple_GET_ITEM(entries, i) == entry)
            return 1;
    return 0;
}

static int call_before(CallSite *marked, PyObject *shown) {
    PyObject *before = Py_NewRef(marked->before);
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(before); i++) {
        PyObject *done = PyObject_CallOneArg(PyTuple_GET_ITEM(before, i), shown);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_DECREF(before);
    return failed ? -1 : 0;
}

/* Call the module between the entries from `at` on. */
static PyObject *call_between(running_call *running, Py_ssize_t at) {
    CallSite *site = running->site, *marked = running->marked;
    if (at == PyTuple_GET_SIZE(running->entries)) {
        marked->inside += site->wraps;
        PyObject *output = call_torch(running->given);
        marked->inside -= site->wraps;
        return output;
    }
    CallEntry *entry = (CallEntry *)PyTuple_GET_ITEM(running->entries, at);
    marked_call call = {entry->code, 0, site != marked && !site->wraps};
    PyObject *token = NULL;
    if (enter_entry(entry, running, &call, &token) < 0)
        return NULL;
    PyObject *output = call_between(running, at + 1), *error = output == NULL ? take_exception() : NULL;
    if ((running->entries == marked->entries || contains(marked->entries, (PyObject *)entry)) && /* else removed since */
        leave_entry(entry, running, &call, token, output != NULL ? output : Py_None) < 0) {
        Py_CLEAR(output); /* a signal handler of the user's raised: its exception is the one that counts */
        Py_XSETREF(error, take_exception());
    }
    Py_XDECREF(token);
    if (error != NULL)
        set_exception(error);
    return output;
}

/* Get the arguments after the module as a tuple and a dict, NULL for no keywords. */
static int pack_arguments(const given_call *given, PyObject **args, PyObject **kwargs) {
    Py_ssize_t count = PyVectorcall_NARGS(given->count), named = given->names == NULL ? 0 : PyTuple_GET_SIZE(given->names);
    *args = PyTuple_New(count - 1);
    *kwargs = named == 0 ? NULL : PyDict_New();
    if (*args == NULL || (named > 0 && *kwargs == NULL))
        return -1;
    for (Py_ssize_t i = 1; i < count; i++)
        PyTuple_SET_ITEM(*args, i - 1, Py_NewRef(given->args[i]));
    for (Py_ssize_t i = 0; i < named; i++)
        if (PyDict_SetItem(*kwargs, PyTuple_GET_ITEM(given->names, i), given->args[count + i]) < 0)
            return -1;
    return 0;
}

static PyObject *call_marked(CallSite *self, CallSite *marked, PyObject *shown, const given_call *given) {
    if (PyTuple_GET_SIZE(marked->before) > 0 && call_before(marked, shown) < 0)
        return NULL;
    running_call running = {self, marked, given, Py_NewRef(marked->entries), shown, NULL, NULL};
    PyObject *output = pack_arguments(given, &running.args, &running.kwargs) < 0 ? NULL : call_between(&running, 0);
    Py_XDECREF(running.args);
    Py_XDECREF(running.kwargs);
    Py_DECREF(running.entries);
    return output;
}

/* Whether a call has nothing around it: no entries, or one that is idle. */
static int is_bare(CallSite *marked) {
    if (marked->reference == NULL) /* cleared */
        return 1;
    Py_ssize_t count = PyTuple_GET_SIZE(marked->entries);
    if (PyTuple_GET_SIZE(marked->before) > 0 || count > 1)
        return 0;
    HookContext *context = count == 0 ? NULL : ((CallEntry *)PyTuple_GET_ITEM(marked->entries, 0))->context;
    return count == 0 || (context != NULL && context->buffer != NULL && context->buffer->idle);
}

/* Return the module of a site, a new reference; None where it no longer exists. */
static PyObject *module_of(CallSite *self) {
    if (self->reference != NULL) {
#if PY_VERSION_HEX >= 0x030D0000
        PyObject *module = NULL;
        if (PyWeakref_GetRef(self->reference, &module) > 0)
            return module;
#else
        return Py_NewRef(PyWeakref_GetObject(self->reference));
#endif
    }
    return Py_NewRef(Py_None);
}

static PyObject *call_site(CallSite *self, const given_call *given) {
    CallSite *marked = self->source != NULL ? (CallSite *)self->source : self;
    PyObject *shown = self->wraps ? module_of(marked) : Py_NewRef(given->args[0]), *output = NULL;
    Py_INCREF(marked);
    if (shown == Py_None || self->inside || is_bare(marked))
        output = call_torch(given);
    else
        output = call_marked(self, marked, shown, given);
    Py_DECREF(marked);
    Py_DECREF(shown);
    return output;
}

static PyObject *call_intercepted(PyObject *function, PyObject *const *args, size_t count, PyObject *names) {
    given_call given = {function, args, count, names};
    int has_module = intercepted.table != NULL && PyVectorcall_NARGS(count) > 0;
    PyObject *site = has_module ? find_site(intercepted.table, args[0]) : NULL, *output = NULL;
    if (site == NULL)
        return PyErr_Occurred() ? NULL : call_torch(&given);
    Py_INCREF(site);
    output = call_site((CallSite *)site, &given);
    Py_DECREF(site);
    return output;
}

static int call_site_set_entries(PyObject *op, PyObject *entries, void *Py_UNUSED(context)) {
    CallSite *self = (CallSite *)op;
    int valid = entries != NULL && PyTuple_CheckExact(entries);
    for (Py_ssize_t i = 0; valid && i < PyTuple_GET_SIZE(entries); i++)
        valid = PyObject_TypeCheck(PyTuple_GET_ITEM(entries, i), self->state->call_entry_type);
    if (!valid) {
        PyErr_SetString(PyExc_TypeError, "entries must be a tuple of CallEntry");
        return -1;
    }
    Py_XSETREF(self->entries, Py_NewRef(entries));
    return 0;
}

static int call_site_set_before(PyObject *op, PyObject *before, void *Py_UNUSED(context)) {
    if (before == NULL || !PyTuple_CheckExact(before)) {
        PyErr_SetString(PyExc_TypeError, "before must be a tuple of functions");
        return -1;
    }
    Py_XSETREF(((CallSite *)op)->before, Py_NewRef(before));
    return 0;
}

static PyObject *call_site_entries(PyObject *op, void *Py_UNUSED(context)) {
    return Py_NewRef(((CallSite *)op)->entries != NULL ? ((CallSite *)op)->entries : Py_None);
}

static PyObject *call_site_before(PyObject *op, void *Py_UNUSED(context)) {
    return Py_NewRef(((CallSite *)op)->before != NULL ? ((CallSite *)op)->before : Py_None);
}

/* The reference first: the entries of a site without it are not called any more. */
#define CALL_SITE_FIELDS(DO) DO(reference) DO(source) DO(before) DO(entries)
DEFINE_COLLECTION(CallSite, call_site, CALL_SITE_FIELDS)

static PyGetSetDef site_properties[] = {
    {"entries", call_site_entries, call_site_set_entries, "tuple of the entries, outermost first", NULL},
    {"before", call_site_before, call_site_set_before, "tuple of the functions called before them", NULL},
    {NULL},
};

static PyType_Slot site_slots[] = {
    {Py_tp_doc, "The marked calls of one module."},
    COLLECTION_SLOTS(call_site),
    {Py_tp_getset, site_properties},
    {0, NULL},
};

DEFINE_SPEC(CallSite, call_site, site_slots, Py_TPFLAGS_DISALLOW_INSTANTIATION);
