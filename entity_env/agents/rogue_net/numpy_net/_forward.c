/* Forward: the decisions of a network for single observations, computed by clients/c/entity_agent.h.
   Arguments have been checked by the caller in Python; whatever does not fit is refused, too, so
   that no wrong argument can read or write beyond an array. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>

#define ENTITY_AGENT_IMPLEMENTATION
#include "entity_agent.h"

#define MIN_ENTITIES 64 /* that a workspace has room for */
#define MAX_LINKED 2048 /* entities and relations: workspaces grow with the square of what can be selected */

typedef struct {
    PyObject_HEAD
    PyObject *source;
    ea_agent *agent;
    PyObject *entities, *actions; /* tuples of names */
    void *memory;                 /* of the workspace */
    ea_workspace *workspace;
    int max_entities;
    /* arrays by entity type or action */
    int *counts;
    const float **features;
    const unsigned char **visible;
    ea_request *requests;
    float **outputs;
    int *indices; /* of actors and actees */
    Py_ssize_t num_indices;
    Py_buffer *views; /* open ones */
    int num_views, is_running;
} Forward;

/* Arrays of an observation: of all types, global features, flags, state, and four of each action. */
#define NUM_VIEWS(spaces) ((size_t)(spaces)->num_entities + 3 + 4 * (size_t)(spaces)->num_actions)

static PyObject *names_of(const char *const *names, int count) {
    PyObject *found = PyTuple_New(count);
    for (int i = 0; found != NULL && i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (name == NULL) Py_CLEAR(found);
        else {
            PyUnicode_InternInPlace(&name);
            PyTuple_SET_ITEM(found, i, name);
        }
    }
    return found;
}

static int read_names(Forward *self) {
    const ea_spaces *spaces = ea_spaces_of(self->agent);
    int most = spaces->num_entities > spaces->num_actions ? spaces->num_entities : spaces->num_actions;
    const char **names = PyMem_New(const char *, (size_t)most + 1);
    if (names == NULL) return PyErr_NoMemory(), 0;
    for (int i = 0; i < spaces->num_entities; i++) names[i] = spaces->entities[i].name;
    self->entities = names_of(names, spaces->num_entities);
    for (int i = 0; i < spaces->num_actions; i++) names[i] = spaces->actions[i].name;
    if (self->entities != NULL) self->actions = names_of(names, spaces->num_actions);
    PyMem_Free(names);
    return self->actions != NULL;
}

static void forward_free(Forward *self) {
    ea_free(self->agent);
    PyMem_Free(self->memory);
    PyMem_Free(self->counts);
    PyMem_Free(self->features);
    PyMem_Free(self->visible);
    PyMem_Free(self->requests);
    PyMem_Free(self->outputs);
    PyMem_Free(self->indices);
    PyMem_Free(self->views);
    Py_XDECREF(self->source);
    Py_XDECREF(self->entities);
    Py_XDECREF(self->actions);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *forward_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    Py_buffer content;
    PyObject *source;
    char error[512];
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        return PyErr_Format(PyExc_TypeError, "Forward takes no keyword arguments");
    }
    if (!PyArg_ParseTuple(arguments, "y*O!", &content, &PyTuple_Type, &source)) return NULL;
    Forward *self = (Forward *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->source = Py_NewRef(source);
        self->agent = ea_load(content.buf, (size_t)content.len, error, sizeof error);
        if (self->agent == NULL) PyErr_SetString(PyExc_ValueError, error);
    }
    PyBuffer_Release(&content);
    if (self == NULL) return NULL;
    if (self->agent != NULL && read_names(self)) {
        const ea_spaces *spaces = ea_spaces_of(self->agent);
        size_t types = (size_t)spaces->num_entities + 1, actions = (size_t)spaces->num_actions + 1;
        self->counts = PyMem_Calloc(types, sizeof(int));
        self->features = PyMem_Calloc(types, sizeof(float *));
        self->visible = PyMem_Calloc(types, sizeof(unsigned char *));
        self->requests = PyMem_Calloc(actions, sizeof(ea_request));
        self->outputs = PyMem_Calloc(actions, sizeof(float *));
        self->views = PyMem_Calloc(NUM_VIEWS(spaces), sizeof(Py_buffer));
        if (self->counts && self->features && self->visible && self->requests && self->outputs && self->views) {
            return (PyObject *)self;
        }
        PyErr_NoMemory();
    }
    Py_DECREF(self);
    return NULL;
}

/* An array as a buffer that stays open until the end of the decision; NULL if it has another form.
   `columns` -1 = one dimension. */
static Py_buffer *view_of(Forward *self, PyObject *array, char kind, Py_ssize_t rows, Py_ssize_t columns, int writes) {
    Py_buffer *view = &self->views[self->num_views];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writes ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array, view, flags) < 0) {
        PyErr_Clear();
        return NULL;
    }
    self->num_views++;
    Py_ssize_t size = kind == 'l' ? 8 : kind == 'f' ? 4 : 1;
    const char *format = view->format == NULL ? "B" : view->format;
    int is_kind = format[0] == kind || (kind == 'l' && format[0] == 'q');
    if (!is_kind || format[1] != 0 || view->itemsize != size) return NULL;
    if (view->ndim != (columns < 0 ? 1 : 2) || view->shape[0] > INT_MAX) return NULL;
    if (rows >= 0 && view->shape[0] != rows) return NULL;
    return columns >= 0 && view->shape[1] != columns ? NULL : view;
}

static int read_features(Forward *self, PyObject *own, PyObject *shared, PyObject *flags, const float **globals) {
    const ea_spaces *spaces = ea_spaces_of(self->agent);
    Py_ssize_t total = 0;
    for (int i = 0; i < spaces->num_entities; i++) {
        PyObject *array = PyDict_GetItemWithError(own, PyTuple_GET_ITEM(self->entities, i));
        self->counts[i] = 0;
        self->features[i] = NULL;
        if (array == NULL) {
            if (PyErr_Occurred()) PyErr_Clear();
            continue;
        }
        Py_INCREF(array); /* reading a buffer may run Python, which could change the dict */
        Py_buffer *view = view_of(self, array, 'f', -1, spaces->entities[i].num_features, 0);
        Py_DECREF(array);
        if (view == NULL) return 0;
        self->counts[i] = (int)view->shape[0];
        self->features[i] = view->buf;
        total += view->shape[0];
    }
    if (total > INT_MAX / 2) return 0;
    if (total > MAX_LINKED && spaces->entities[spaces->num_entities - 1].references) return 0;
    *globals = NULL;
    if (spaces->num_globals) {
        Py_buffer *view = view_of(self, shared, 'f', spaces->num_globals, -1, 0);
        if (view == NULL) return 0;
        *globals = view->buf;
    }
    if (flags != Py_None) {
        Py_buffer *view = view_of(self, flags, '?', -1, -1, 0);
        if (view == NULL || view->shape[0] < total) return 0;
        const unsigned char *at = view->buf;
        for (int i = 0; i < spaces->num_entities; i++) self->visible[i] = at, at += self->counts[i];
    }
    if (self->workspace == NULL || total > self->max_entities) {
        int room = total < MIN_ENTITIES / 2 ? MIN_ENTITIES : 2 * (int)total;
        size_t size = ea_workspace_size(self->agent, room);
        void *memory = size ? PyMem_Malloc(size) : NULL;
        if (memory == NULL) return 0;
        PyMem_Free(self->memory);
        self->memory = memory;
        self->max_entities = room;
        self->workspace = ea_workspace_in(self->agent, room, memory);
    }
    return 1;
}

/* Writes indices after the first `used`. */
static int read_indices(Forward *self, PyObject *array, Py_ssize_t used, int *count) {
    Py_buffer *view = view_of(self, array, 'l', -1, -1, 0);
    if (view == NULL) return 0;
    Py_ssize_t size = view->shape[0], needed = used + size;
    if (needed > self->num_indices) {
        if (needed > PY_SSIZE_T_MAX / 16) return 0;
        int *more = PyMem_Realloc(self->indices, sizeof(int) * 2 * (size_t)needed);
        if (more == NULL) return 0;
        self->indices = more;
        self->num_indices = 2 * needed;
    }
    const int64_t *from = view->buf;
    int *to = self->indices + used;
    for (Py_ssize_t i = 0; i < size; i++) to[i] = from[i] < 0 || from[i] > INT_MAX ? -1 : (int)from[i];
    *count = (int)size;
    return 1;
}

static int index_of(PyObject *names, PyObject *name) {
    Py_ssize_t i, count = PyTuple_GET_SIZE(names);
    for (i = 0; i < count && PyTuple_GET_ITEM(names, i) != name; i++) {}
    if (i < count) return (int)i;
    if (!PyUnicode_Check(name)) return -1;
    for (i = 0; i < count && PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name); i++) {}
    return i < count ? (int)i : -1;
}

/* `asked` has items (action, actors, actees or None, allowed or None, output). It is a copy: reading a
   buffer may run Python, which could change the list. */
static int read_requests(Forward *self, PyObject *asked) {
    const ea_spaces *spaces = ea_spaces_of(self->agent);
    Py_ssize_t used = 0, num_asked = PyTuple_GET_SIZE(asked);
    memset(self->requests, 0, sizeof(ea_request) * (size_t)spaces->num_actions);
    for (int i = 0; i < spaces->num_actions; i++) self->outputs[i] = NULL;
    for (Py_ssize_t i = 0; i < num_asked; i++) {
        PyObject *item = PyTuple_GET_ITEM(asked, i);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 5) return 0;
        int action = index_of(self->actions, PyTuple_GET_ITEM(item, 0));
        if (action < 0 || self->outputs[action] != NULL) return 0;
        const ea_action *space = &spaces->actions[action];
        ea_request *request = &self->requests[action];
        if (!read_indices(self, PyTuple_GET_ITEM(item, 1), used, &request->num_actors)) return 0;
        used += request->num_actors;
        int num_choices = space->num_labels;
        if (space->kind == EA_SELECT_ENTITY) {
            if (!read_indices(self, PyTuple_GET_ITEM(item, 2), used, &request->num_actees)) return 0;
            used += request->num_actees;
            num_choices = request->num_actees;
        }
        if (PyTuple_GET_ITEM(item, 3) != Py_None) {
            Py_buffer *mask = view_of(self, PyTuple_GET_ITEM(item, 3), '?', request->num_actors, num_choices, 0);
            if (mask == NULL) return 0;
            request->mask = mask->buf;
        }
        Py_buffer *output = view_of(self, PyTuple_GET_ITEM(item, 4), 'f', request->num_actors, num_choices, 1);
        if (output == NULL) return 0;
        self->outputs[action] = output->buf;
    }
    const int *at = self->indices; /* which no longer moves */
    for (Py_ssize_t i = 0; i < num_asked; i++) {
        ea_request *request = &self->requests[index_of(self->actions, PyTuple_GET_ITEM(PyTuple_GET_ITEM(asked, i), 0))];
        request->actors = at, at += request->num_actors;
        request->actees = at, at += request->num_actees;
    }
    return 1;
}

static int decide(Forward *self, PyObject *const *arguments, PyObject *asked, double temperature) {
    const ea_spaces *spaces = ea_spaces_of(self->agent);
    PyObject *own = arguments[0], *shared = arguments[1], *flags = arguments[2];
    Py_buffer *state = NULL;
    int state_size = ea_state_size(self->agent);
    ea_obs obs;
    obs.random = NULL;
    if (arguments[5] != Py_None || state_size) {
        state = view_of(self, arguments[5], 'f', 1, state_size, 1);
        if (state == NULL) return 0;
    }
    if (!read_features(self, own, shared, flags, &obs.globals) || !read_requests(self, asked)) return 0;
    obs.counts = self->counts;
    obs.features = self->features;
    obs.visible = flags == Py_None ? NULL : self->visible;
    obs.requests = self->requests;
    obs.state = state == NULL ? NULL : state->buf;
    if (ea_think(self->workspace, &obs, temperature, 0) != NULL) return 0;
    if (state_size) memcpy(state->buf, ea_state(self->workspace), (size_t)state_size * sizeof(float));
    for (int action = 0; action < spaces->num_actions; action++) {
        float *to = self->outputs[action];
        size_t num_choices = (size_t)ea_num_choices(self->workspace, action);
        for (int i = 0; to != NULL && i < self->requests[action].num_actors; i++, to += num_choices) {
            memcpy(to, ea_probabilities(self->workspace, action, i), num_choices * sizeof(float));
        }
    }
    return 1;
}

static PyObject *forward_decide(Forward *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 6 || !PyDict_Check(arguments[0]) || !PyList_Check(arguments[3])) {
        return PyErr_Format(
            PyExc_TypeError, "expected a dict, an array, an array or None, a list, a number, an array or None"
        );
    }
    if (self->is_running) Py_RETURN_FALSE; /* a buffer of the running decision asks for another one */
    double temperature = PyFloat_AsDouble(arguments[4]);
    if (temperature == -1.0 && PyErr_Occurred()) return NULL;
    PyObject *asked = PyList_AsTuple(arguments[3]);
    if (asked == NULL) return NULL;
    int is_done = 0;
    if (!self->is_running) { /* the temperature may have run Python */
        self->is_running = 1;
        is_done = decide(self, arguments, asked, temperature);
        while (self->num_views) PyBuffer_Release(&self->views[--self->num_views]);
        self->is_running = 0;
    }
    Py_DECREF(asked);
    return PyBool_FromLong(is_done);
}

static PyObject *forward_reduce(Forward *self, PyObject *Py_UNUSED(ignored)) {
    return Py_NewRef(self->source);
}

static PyMethodDef FORWARD_METHODS[] = {
    {"decide", (PyCFunction)(void (*)(void))forward_decide, METH_FASTCALL, NULL},
    {"__reduce__", (PyCFunction)forward_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ForwardType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "entity_env.agents.rogue_net.numpy_net._forward.Forward",
    .tp_basicsize = sizeof(Forward),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = forward_new,
    .tp_methods = FORWARD_METHODS,
    .tp_dealloc = (destructor)forward_free,
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "entity_env.agents.rogue_net.numpy_net._forward", .m_size = -1};

PyMODINIT_FUNC PyInit__forward(void) {
    if (PyType_Ready(&ForwardType)) return NULL;
    PyObject *module = PyModule_Create(&MODULE);
    if (module != NULL && PyModule_AddObjectRef(module, "Forward", (PyObject *)&ForwardType)) Py_CLEAR(module);
    return module;
}
