/* Reading observations in C: the loops that run for every observation of a step. If this module was
   not built, or an observation has another form, `entity_type.py` and `batching` read them one by
   one, with the same results. Only documented names of CPython's API are used. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* Offset of a member that a class itself defines; -1 without an error if it has no such member. */
static Py_ssize_t member_offset(PyTypeObject *cls, const char *name) {
    if (name == NULL || cls->tp_members == NULL) return -1;
    for (PyMemberDef *member = cls->tp_members; member->name != NULL; member++)
        if (strcmp(member->name, name) == 0) return member->type == T_OBJECT_EX ? member->offset : -1;
    return -1;
}

/* Offset of a slot in the instances of a class; -1 if the name is not a slot, with an error only if
   finding out has failed. */
static Py_ssize_t offset_of(PyTypeObject *cls, PyObject *name) {
    Py_ssize_t offset = -1;
    /* The `__getattribute__` of a metaclass may return the slot of another name. */
    if (Py_TYPE(cls)->tp_getattro != PyType_Type.tp_getattro) return -1;
    PyObject *found = PyObject_GetAttr((PyObject *)cls, name), *owner = NULL, *own_name = NULL;
    if (found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        owner = PyObject_GetAttrString(found, "__objclass__");
        own_name = owner == NULL ? NULL : PyObject_GetAttrString(found, "__name__");
        /* `Small.x = Big.x` makes a descriptor an attribute of a class whose instances have no such offset. */
        if (own_name != NULL && PyType_IsSubtype(cls, (PyTypeObject *)owner))
            offset = member_offset((PyTypeObject *)owner, PyUnicode_AsUTF8(own_name));
    }
    Py_XDECREF(found);
    Py_XDECREF(owner);
    Py_XDECREF(own_name);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return offset;
}

static int append_number(PyObject *list, Py_ssize_t number) {
    PyObject *value = PyLong_FromSsize_t(number);
    if (value == NULL) return -1;
    int failed = PyList_Append(list, value);
    Py_DECREF(value);
    return failed;
}

static int cut_list(PyObject *list, Py_ssize_t length) {
    return PyList_SetSlice(list, length, PyList_GET_SIZE(list), NULL);
}

/* ---------------------------------------------------------------------------------------- Reader */

typedef struct {
    Py_ssize_t offset;
    PyObject *member; /* the feature: whether the slot holds this object; NULL: the slot's value */
} Feature;

typedef struct {
    PyObject_HEAD
    PyTypeObject *cls;
    Py_ssize_t count;
    Feature *features;
} Reader;

/* For the garbage collector: a class keeps its reader, which refers to the class. */
static int reader_traverse(Reader *self, visitproc visit, void *arg) {
    Py_VISIT(self->cls);
    for (Py_ssize_t i = 0; i < self->count; i++) Py_VISIT(self->features[i].member);
    return 0;
}

static int reader_clear(Reader *self) {
    Py_CLEAR(self->cls); /* then no entity is read */
    for (Py_ssize_t i = 0; i < self->count; i++) Py_CLEAR(self->features[i].member);
    return 0;
}

static void reader_free(Reader *self) {
    PyObject_GC_UnTrack(self);
    reader_clear(self);
    PyMem_Free(self->features);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Reader(cls, ((slot,) or (slot, member), ...)) */
static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *cls, *features;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &cls, &PyTuple_Type, &features)) return NULL;
    Reader *self = (Reader *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(features);
    self->cls = (PyTypeObject *)Py_NewRef(cls);
    self->features = PyMem_Calloc(count + 1, sizeof(Feature));
    if (self->features == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (; self->count < count; self->count++) {
        Feature *feature = &self->features[self->count];
        PyObject *name, *member = NULL;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(features, self->count), "U|O", &name, &member)) break;
        feature->offset = offset_of(self->cls, name);
        if (feature->offset < 0 || self->cls->tp_getattro != PyObject_GenericGetAttr) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%U is no slot of %R", name, cls);
            break;
        }
        feature->member = Py_XNewRef(member);
    }
    if (self->count < count) Py_CLEAR(self);
    return (PyObject *)self;
}

/* Appends the values of entities; 1 = done, 0 = an entity cannot be read here, -1 = error. */
static int read_entities(Reader *self, PyObject **entities, Py_ssize_t count, PyObject *numbers) {
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *entity = entities[k];
        if (Py_TYPE(entity) != self->cls) return 0;
        for (Py_ssize_t i = 0; i < self->count; i++) {
            Feature *feature = &self->features[i];
            PyObject *value = SLOT(entity, feature->offset);
            if (value == NULL) return 0;
            if (feature->member != NULL) value = value == feature->member ? Py_True : Py_False;
            if (PyList_Append(numbers, value)) return -1;
        }
    }
    return 1;
}

/* read(entities, numbers) -> whether all were read; if not, nothing is added. */
static PyObject *reader_read(Reader *self, PyObject *args) {
    PyObject *given, *numbers;
    if (!PyArg_ParseTuple(args, "OO!", &given, &PyList_Type, &numbers)) return NULL;
    if (given == numbers) return PyErr_Format(PyExc_ValueError, "entities and numbers must be two lists");
    PyObject *entities = PySequence_Fast(given, "entities must be a sequence");
    if (entities == NULL) return NULL;
    Py_ssize_t before = PyList_GET_SIZE(numbers);
    int done = read_entities(self, PySequence_Fast_ITEMS(entities), PySequence_Fast_GET_SIZE(entities), numbers);
    Py_DECREF(entities);
    if (done == 0 && cut_list(numbers, before)) return NULL;
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static PyMethodDef READER_METHODS[] = {
    {"read", (PyCFunction)reader_read, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ReaderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "entity_env.authoring._speedups.Reader",
    .tp_basicsize = sizeof(Reader),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = reader_new,
    .tp_traverse = (traverseproc)reader_traverse,
    .tp_clear = (inquiry)reader_clear,
    .tp_methods = READER_METHODS,
    .tp_dealloc = (destructor)reader_free,
};

/* ---------------------------------------------------------------------------------------- gather */

static PyTypeObject *obs_class;
typedef struct { Py_ssize_t groups, actor_groups, globals, masks, hidden, metrics; } ObsOffsets;
static ObsOffsets obs_at;

static PyObject *set_obs_class(PyObject *module, PyObject *cls) {
    static const char *const names[] = {
        "groups", "actor_groups", "global_features", "masks", "hidden", "metrics", NULL};
    ObsOffsets found;
    Py_ssize_t *offset = &found.groups;
    if (!PyType_Check(cls)) return PyErr_Format(PyExc_TypeError, "expected a class, got %R", cls);
    for (Py_ssize_t i = 0; names[i] != NULL; i++, offset++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (name == NULL) return NULL;
        *offset = offset_of((PyTypeObject *)cls, name);
        Py_DECREF(name);
        if (*offset < 0 && PyErr_Occurred()) return NULL;
        if (*offset < 0) return PyErr_Format(PyExc_TypeError, "%s is no slot of %R", names[i], cls);
    }
    obs_at = found; /* set with the class: another class must not be read with these offsets */
    Py_XSETREF(obs_class, (PyTypeObject *)Py_NewRef(cls));
    Py_RETURN_NONE;
}

#define FEW_COLUMNS 64
/* The sum of two such indices, or of an index and a list size, does not overflow. */
#define IS_INDEX(number) ((number) >= 0 && (number) <= PY_SSIZE_T_MAX / 2)

/* The entities of one type; `list` holds numbers if there is a reader, else the entities. */
typedef struct {
    PyTypeObject *cls;
    Reader *reader;
    PyObject *list, *ends;
    Py_ssize_t before, stride; /* number of entities before `list`; items of `list` per entity */
    Py_ssize_t row_start;
} Column;

static int parse_columns(PyObject *given, Column *columns) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(given); k++) {
        PyObject *cls, *reader;
        Column *column = &columns[k];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, k), "OOO!O!nn", &cls, &reader, &PyList_Type, &column->list,
                              &PyList_Type, &column->ends, &column->before, &column->stride))
            return -1;
        if (column->stride < 1 || !IS_INDEX(column->before) || (reader != Py_None && !Py_IS_TYPE(reader, &ReaderType))) {
            PyErr_SetString(PyExc_TypeError, "a column needs a Reader or None, an index and a positive stride");
            return -1;
        }
        column->cls = (PyTypeObject *)cls;
        column->reader = reader == Py_None ? NULL : (Reader *)reader;
    }
    return 0;
}

static int add_entities(Column *column, PyObject **entities, Py_ssize_t count) {
    if (column->reader != NULL) return read_entities(column->reader, entities, count, column->list);
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyList_Append(column->list, entities[i])) return -1;
    return 1;
}

/* Adds the groups of one observation; 1 = done, 0 = another form, -1 = error. */
static int add_groups(PyObject *groups, Column *columns, Py_ssize_t num_columns, Py_ssize_t acting,
                      Py_ssize_t row, PyObject *actors) {
    Py_ssize_t j = 0; /* games mostly add types in column order */
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(groups); k++) {
        PyObject *group = PyList_GET_ITEM(groups, k);
        if (!PyList_CheckExact(group) && !PyTuple_CheckExact(group)) return 0;
        Py_ssize_t count = PySequence_Fast_GET_SIZE(group), tried = 0;
        if (count == 0) continue;
        PyObject **entities = PySequence_Fast_ITEMS(group);
        for (; tried < num_columns && columns[j].cls != Py_TYPE(entities[0]); tried++)
            if (++j == num_columns) j = 0;
        if (tried == num_columns) return 0;
        Column *column = &columns[j];
        if (k == acting) {
            Py_ssize_t start = column->before + PyList_GET_SIZE(column->list) / column->stride;
            if (append_number(actors, row) || append_number(actors, j) || append_number(actors, start)
                || append_number(actors, count))
                return -1;
        }
        int done = add_entities(column, entities, count);
        if (done != 1) return done;
    }
    return 1;
}

#define NO_GROUP -1
#define OTHER_FORM -2

/* Index of the only group that acts. */
static Py_ssize_t acting_group(PyObject *marked, int acts) {
    if (marked == Py_None) return acts ? OTHER_FORM : NO_GROUP;
    if (!acts || !PyList_CheckExact(marked) || PyList_GET_SIZE(marked) != 1) return OTHER_FORM;
    PyObject *pair = PyList_GET_ITEM(marked, 0);
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return OTHER_FORM;
    PyObject *number = PyTuple_GET_ITEM(pair, 0), *kinds = PyTuple_GET_ITEM(pair, 1);
    if (!PyLong_CheckExact(number) || !PyTuple_CheckExact(kinds) || PyTuple_GET_SIZE(kinds)) return OTHER_FORM;
    Py_ssize_t acting = PyLong_AsSsize_t(number);
    if (acting >= 0) return acting;
    PyErr_Clear();
    return OTHER_FORM;
}

typedef struct {
    PyObject *kinds, *globals_cls, *acting, *asking, *named;
    Column *columns;
    Py_ssize_t num_columns;
    int acts, has_globals; /* the last column holds the global features */
} Gathering;

/* Adds one observation; 1 = done, 0 = another form and nothing was added, -1 = error. */
static int gather_one(Gathering *to, PyObject *obs, PyObject *asked, Py_ssize_t row) {
    /* First, because it may run Python: later borrowed references stay valid until garbage collection. */
    int is_same = PyObject_RichCompareBool(asked, to->kinds, Py_EQ);
    if (is_same != 1) return is_same;
    PyObject *groups = SLOT(obs, obs_at.groups), *marked = SLOT(obs, obs_at.actor_groups);
    PyObject *globals = SLOT(obs, obs_at.globals), *metrics = SLOT(obs, obs_at.metrics);
    if (!groups || !marked || !globals || !metrics || !PyList_CheckExact(groups)) return 0;
    if (SLOT(obs, obs_at.masks) != Py_None || SLOT(obs, obs_at.hidden) != Py_None) return 0;
    if ((PyObject *)Py_TYPE(globals) != to->globals_cls) return 0;
    Py_ssize_t acting = acting_group(marked, to->acts);
    if (acting == OTHER_FORM) return 0;
    Py_ssize_t num_acting = PyList_GET_SIZE(to->acting), num_local = to->num_columns - to->has_globals;
    for (Py_ssize_t k = 0; k < to->num_columns; k++)
        to->columns[k].row_start = PyList_GET_SIZE(to->columns[k].list);
    int done = add_groups(groups, to->columns, num_local, acting, row, to->acting);
    if (done == 1 && to->has_globals) done = add_entities(&to->columns[num_local], &globals, 1);
    if (done == 0) {
        if (cut_list(to->acting, num_acting)) return -1;
        for (Py_ssize_t k = 0; k < to->num_columns; k++)
            if (cut_list(to->columns[k].list, to->columns[k].row_start)) return -1;
    }
    if (done != 1) return done;
    if (metrics != Py_None) {
        /* A new tuple may trigger the garbage collector, and a __del__ may replace the metrics. */
        Py_INCREF(metrics);
        PyObject *pair = Py_BuildValue("nO", row, metrics);
        int failed = pair == NULL || PyList_Append(to->named, pair);
        Py_XDECREF(pair);
        Py_DECREF(metrics);
        if (failed) return -1;
    }
    return append_number(to->asking, row) ? -1 : 1;
}

/* Adds observations until one has another form; returns their number, or -1. */
static Py_ssize_t gather_all(Gathering *to, PyObject *shown, PyObject *asked, Py_ssize_t first, Py_ssize_t row) {
    Py_ssize_t i = first;
    for (; i < PySequence_Fast_GET_SIZE(shown) && i < PySequence_Fast_GET_SIZE(asked); i++, row++) {
        PyObject *obs = Py_NewRef(PySequence_Fast_GET_ITEM(shown, i));
        PyObject *kinds = Py_NewRef(PySequence_Fast_GET_ITEM(asked, i));
        int done = obs == Py_None;
        if (!done && PyObject_TypeCheck(obs, obs_class)) done = gather_one(to, obs, kinds, row);
        Py_DECREF(obs);
        Py_DECREF(kinds);
        if (done < 0) return -1;
        if (done == 0) break;
        for (Py_ssize_t k = 0; k < to->num_columns; k++)
            if (append_number(to->columns[k].ends, PyList_GET_SIZE(to->columns[k].list))) return -1;
    }
    return i - first;
}

static PyObject *gather(PyObject *module, PyObject *args) {
    PyObject *shown, *asked, *columns;
    Py_ssize_t first, row, count = -1;
    Gathering to;
    Column few[FEW_COLUMNS];
    if (!PyArg_ParseTuple(args, "OOnnOpO!OpO!O!O!", &shown, &asked, &first, &row, &to.kinds, &to.acts,
                          &PyTuple_Type, &columns, &to.globals_cls, &to.has_globals, &PyList_Type, &to.acting,
                          &PyList_Type, &to.asking, &PyList_Type, &to.named))
        return NULL;
    to.num_columns = PyTuple_GET_SIZE(columns);
    if (!IS_INDEX(first) || !IS_INDEX(row) || obs_class == NULL || to.has_globals > to.num_columns)
        return PyErr_Format(PyExc_ValueError, "gather: set_obs_class comes first; a row must not be negative");
    to.columns = to.num_columns <= FEW_COLUMNS ? few : PyMem_New(Column, to.num_columns);
    if (to.columns == NULL) return PyErr_NoMemory();
    shown = PySequence_Fast(shown, "shown must be a sequence");
    asked = shown == NULL ? NULL : PySequence_Fast(asked, "asked must be a sequence");
    if (asked != NULL && !parse_columns(columns, to.columns)) count = gather_all(&to, shown, asked, first, row);
    Py_XDECREF(shown);
    Py_XDECREF(asked);
    if (to.columns != few) PyMem_Free(to.columns);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

/* ----------------------------------------------------------------------------------------- pack */

/* After a failed conversion: 0 = the value is not such a number; -1 = its __float__ or __index__
   was interrupted or failed for another reason, and that exception is raised. */
static int clear_if_no_number(void) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)
        && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Converts a list; 1 = done, 2 = done but some not finite, 0 = not such a number, -1 = error. */
static int pack_all(PyObject *numbers, Py_buffer *out, Py_ssize_t start, int as_float) {
    double sum = 0; /* sum of terms that are 0 for finite numbers, else NaN */
    Py_ssize_t size = as_float ? sizeof(float) : sizeof(int64_t), count = PyList_GET_SIZE(numbers);
    if (out->itemsize != size || start < 0 || start > out->len / size - count) {
        PyErr_SetString(PyExc_ValueError, "the buffer is too small, or of another type");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i >= PyList_GET_SIZE(numbers)) return 0; /* shortened by another number's __float__ */
        PyObject *value = Py_NewRef(PyList_GET_ITEM(numbers, i));
        int failed;
        if (as_float) {
            double number = PyFloat_CheckExact(value) ? PyFloat_AS_DOUBLE(value) : PyFloat_AsDouble(value);
            float rounded = ((float *)out->buf)[start + i] = (float)number;
            sum += rounded - rounded;
            failed = number == -1.0 && PyErr_Occurred();
        } else {
            long long number = PyLong_AsLongLong(value);
            ((int64_t *)out->buf)[start + i] = number;
            failed = number == -1 && PyErr_Occurred();
        }
        Py_DECREF(value);
        if (failed) return clear_if_no_number();
    }
    return sum == 0 ? 1 : 2;
}

static PyObject *pack(PyObject *args, int as_float) {
    PyObject *numbers, *array;
    Py_ssize_t start = 0;
    Py_buffer out;
    if (!PyArg_ParseTuple(args, "O!O|n", &PyList_Type, &numbers, &array, &start)) return NULL;
    if (PyObject_GetBuffer(array, &out, PyBUF_CONTIG | PyBUF_FORMAT)) return NULL;
    int done = pack_all(numbers, &out, start, as_float);
    PyBuffer_Release(&out);
    return done < 0 ? NULL : PyLong_FromLong(done);
}

static PyObject *pack_floats(PyObject *module, PyObject *args) { return pack(args, 1); }
static PyObject *pack_ints(PyObject *module, PyObject *args) { return pack(args, 0); }

/* --------------------------------------------------------------------------------------- module */

static PyMethodDef METHODS[] = {
    {"set_obs_class", set_obs_class, METH_O, NULL},
    {"gather", gather, METH_VARARGS, NULL},
    {"pack_floats", pack_floats, METH_VARARGS, NULL},
    {"pack_ints", pack_ints, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "entity_env.authoring._speedups", .m_size = -1, .m_methods = METHODS};

PyMODINIT_FUNC PyInit__speedups(void) {
    if (PyType_Ready(&ReaderType)) return NULL;
    PyObject *module = PyModule_Create(&MODULE);
    if (module != NULL && PyModule_AddObjectRef(module, "Reader", (PyObject *)&ReaderType)) Py_CLEAR(module);
    return module;
}
