/* Loops that torch and NumPy are slow at; each has an equivalent in Python that gives the same bytes.

   The module is optional: without a compiler it is not built, and graphveil/core/noise/_kernels.py uses the Python ways. Arguments are
   contiguous buffers, and whoever calls checks their sizes. The interpreter is released while a loop runs, so that Python's
   threads can share rows. The build passes -ffp-contract=off: a fused multiply-add would round in another place. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default"))) /* chosen when the module is loaded */
#else
#define FOR_EACH_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, MAX_WIDTH = 128, TOGETHER = 8, AHEAD = 128, COLUMNS_OF_A_LINE = 32, NARROW_BITS = 11 };

typedef int16_t Short __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef int16_t Half __attribute__((vector_size(LANES)));
typedef int32_t Long __attribute__((vector_size(2 * LANES))); /* eight sums */

static PyObject *release(Py_buffer *views, int count) {
    for (int k = 0; k < count; k++)
        PyBuffer_Release(&views[k]);
    Py_RETURN_NONE;
}

/* -- sums over in-edges -------------------------------------------------------------------------------------------------- */

typedef struct {
    const int32_t *offsets, *sources, *shifts, *noise; /* shifts may be NULL */
    const int16_t *rows;
    int64_t first, last, dim, zero; /* rows[zero] is all zeros */
    float scale;
    float *out;
} Sums;

#define LOW(x) __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7), Long)
#define HIGH(x) __builtin_convertvector(__builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15), Long)

/* Add eight rows at a time, sixteen columns of them. Where entries are at most 2^11, eight of them add up in 16 bits. The row of
   zeros stands for what a list lacks of eight, which costs less than a loop of any length.

   Memory is asked for the rows of later edges: their addresses are random, and waiting for one costs more than adding it. The
   second-level cache is the right one: with the first-level hint the sum takes 1.4 times as long at 1.8M nodes. */
INLINE void add_rows(const Sums *s, const int64_t width, const int narrow) {
    const int32_t *offsets = s->offsets, *sources = s->sources;
    const int64_t zero = s->zero, last_eight = (int64_t)offsets[s->last] - TOGETHER;
    for (int64_t v = s->first; v < s->last; v++) {
        const int64_t begin = offsets[v], stop = offsets[v + 1];
        const int16_t *rows = s->rows + (s->shifts ? width * s->shifts[v] : 0), *nothing = s->rows + width * zero;
        for (int64_t column = 0; column < width; column += LANES) {
            Long low = {0}, high = {0};
            for (int64_t e = begin; e < stop; e += TOGETHER) {
                const int whole = e + TOGETHER <= stop;
                const int16_t *row[TOGETHER];
                const int32_t *later = sources + (e + AHEAD < last_eight ? e + AHEAD : last_eight);
                for (int k = 0; k < TOGETHER && column == 0 && last_eight >= 0; k++)
                    for (int64_t c = 0; c < width; c += COLUMNS_OF_A_LINE)
                        __builtin_prefetch(rows + width * (int64_t)later[k] + c, 0, 2);
                if (whole)
                    for (int k = 0; k < TOGETHER; k++)
                        row[k] = rows + width * (int64_t)sources[e + k];
                else
                    for (int k = 0; k < TOGETHER; k++)
                        row[k] = e + k < stop ? rows + width * (int64_t)sources[e + k] : nothing;
                Short x[TOGETHER];
                for (int k = 0; k < TOGETHER; k++)
                    x[k] = *(const Short *)(row[k] + column);
                if (narrow) {
                    Short sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
                    low += LOW(sum), high += HIGH(sum);
                } else
                    for (int k = 0; k < TOGETHER; k++)
                        low += LOW(x[k]), high += HIGH(x[k]);
            }
            int32_t sum[LANES];
            memcpy(sum, &low, sizeof(low)), memcpy(sum + LANES / 2, &high, sizeof(high));
            const int64_t left = s->dim - column < LANES ? s->dim - column : LANES, place = v * s->dim + column;
            for (int64_t c = 0; c < left; c++) /* the only rounding is of the noisy sum; the scale is a power of two */
                s->out[place + c] = (float)(sum[c] + s->noise[place + c]) * s->scale;
        }
    }
}

FOR_EACH_PROCESSOR static void add_all(const Sums *s, int64_t width, int narrow) {
    if (narrow && width == LANES) /* by default; a constant width takes less time */
        add_rows(s, LANES, 1);
    else if (narrow)
        add_rows(s, width, 1);
    else
        add_rows(s, width, 0);
}

static PyObject *add_noisy_sums(PyObject *self, PyObject *args) {
    Py_buffer b[6]; /* offsets, sources, shifts, rows, noise, out */
    Py_ssize_t first, last, dim;
    int width, bits;
    float scale;
    if (!PyArg_ParseTuple(args, "y*y*z*y*y*w*nnniif", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &first, &last, &dim, &width,
                          &bits, &scale))
        return NULL;
    Sums s = {b[0].buf, b[1].buf, b[2].buf, b[4].buf, b[3].buf, first, last, dim, b[3].len / (2 * width) - 1, scale, b[5].buf};
    Py_BEGIN_ALLOW_THREADS;
    add_all(&s, width, bits <= NARROW_BITS);
    Py_END_ALLOW_THREADS;
    return release(b, 6);
}

/* -- truncated contributions --------------------------------------------------------------------------------------------- */

typedef struct {
    const void *vectors;
    const double *bounds;
    const int64_t *kinds; /* may be NULL */
    int64_t first, last, count, copies;
    int16_t *rows;
} Vectors;

/* Row i of copy h is trunc(bounds[kind of i][h] * vectors[i]). One that is longer than its bound counts for nothing: no sum of
   squares within the bound is rounded, and NaN is within no bound. */
INLINE void truncate_all(const Vectors *s, const int is_double, int64_t dim, int64_t width) {
    double grid[MAX_WIDTH] = {0};
    for (int64_t i = s->first; i < s->last; i++)
        for (int64_t h = 0; h < s->copies; h++) {
            double bound = s->bounds[(s->kinds ? s->kinds[i] * s->copies : 0) + h], part[4] = {0};
            int16_t *out = s->rows + width * (h * s->count + i);
            for (int64_t c = 0; c < dim; c++)
                grid[c] = trunc((is_double ? ((const double *)s->vectors)[i * dim + c]
                                           : ((const float *)s->vectors)[i * dim + c]) * bound);
            for (int64_t c = 0; c < width; c += 4)
                for (int k = 0; k < 4; k++)
                    part[k] += grid[c + k] * grid[c + k];
            int fits = (part[0] + part[1]) + (part[2] + part[3]) <= bound * bound;
            for (int64_t c = 0; c < width; c++)
                out[c] = (int16_t)(fits ? grid[c] : 0.0);
        }
}

FOR_EACH_PROCESSOR static void truncate_vectors(const Vectors *s, int is_double, int64_t dim, int64_t width) {
    if (is_double)
        truncate_all(s, 1, dim, width);
    else if (dim == 16) /* by default; a constant length takes half of the time */
        truncate_all(s, 0, 16, 16);
    else
        truncate_all(s, 0, dim, width);
}

static PyObject *truncate_rows(PyObject *self, PyObject *args) {
    Py_buffer b[4]; /* vectors, bounds, kinds, rows */
    Py_ssize_t first, last, count, dim, width, copies;
    if (!PyArg_ParseTuple(args, "y*y*z*w*nnnnnn", &b[0], &b[1], &b[2], &b[3], &first, &last, &count, &dim, &width, &copies))
        return NULL;
    Vectors s = {b[0].buf, b[1].buf, b[2].buf, first, last, count, copies, b[3].buf};
    Py_BEGIN_ALLOW_THREADS;
    truncate_vectors(&s, b[0].len == (Py_ssize_t)sizeof(double) * count * dim, dim, width);
    Py_END_ALLOW_THREADS;
    return release(b, 4);
}

/* -- the exact discrete Gaussian: core/noise/discrete_gaussian.py says what the tables are ------------------------------------------ */

/* Write counters of 128 bits, big-endian: a row in the upper 96, its block in the lower 32. Either each row has its one block,
   or all rows have the same blocks. */
static PyObject *counters(PyObject *self, PyObject *args) {
    Py_buffer b[3]; /* rows, blocks, out */
    int paired;
    if (!PyArg_ParseTuple(args, "y*y*w*p", &b[0], &b[1], &b[2], &paired))
        return NULL;
    const int64_t *rows = b[0].buf, *blocks = b[1].buf, count = b[0].len / 8, each = paired ? 1 : b[1].len / 8;
    uint64_t *out = b[2].buf;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < each; j++) {
            *out++ = __builtin_bswap64((uint64_t)rows[i] >> 32);
            *out++ = __builtin_bswap64((uint64_t)rows[i] << 32 | (uint64_t)blocks[paired ? i : j]);
        }
    Py_END_ALLOW_THREADS;
    return release(b, 3);
}

/* Write the candidate of each word, and list the words that no threshold decides. */
static PyObject *look_up(PyObject *self, PyObject *args) {
    Py_buffer b[6]; /* words, slots, start, sure, out, listed */
    int place_bits, slot_bits;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*w*ii", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &place_bits, &slot_bits))
        return NULL;
    const uint32_t *words = b[0].buf, *sure = b[3].buf, narrow = ((uint32_t)1 << place_bits) - 1;
    const uint32_t slot_mask = ((uint32_t)1 << slot_bits) - 1;
    const uint16_t *slots = b[1].buf;
    const int32_t *start = b[2].buf;
    const int64_t count = b[0].len / 4;
    int32_t *restrict out = b[4].buf;
    int64_t found = 0, *restrict listed = b[5].buf;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = words[i], strip = slots[word >> place_bits & slot_mask];
        out[i] = start[strip] + (int32_t)(word & narrow);
        listed[found] = i; /* written over if the word is sure: a branch would be guessed wrong */
        found += word >= sure[strip];
    }
    Py_END_ALLOW_THREADS;
    Py_DECREF(release(b, 6));
    return PyLong_FromLongLong(found);
}

/* Write each word's candidate, whether it is accepted, and whether that is too close to decide in floating point. */
static PyObject *decide(PyObject *self, PyObject *args) {
    Py_buffer b[8]; /* words, more, slots, start, share, mask, values, decisions */
    int place_bits, slot_bits;
    double over_sigma, ambiguous;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*w*w*iidd", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7], &place_bits,
                          &slot_bits, &over_sigma, &ambiguous))
        return NULL;
    const uint32_t *words = b[0].buf, *mask = b[5].buf, narrow = ((uint32_t)1 << place_bits) - 1;
    const uint32_t slot_mask = ((uint32_t)1 << slot_bits) - 1;
    const uint64_t *more = b[1].buf;
    const uint16_t *slots = b[2].buf;
    const int32_t *start = b[3].buf;
    const double *share = b[4].buf, unit = ldexp(1.0, place_bits + slot_bits - 32);
    const int64_t count = b[0].len / 4;
    int32_t *values = b[6].buf;
    uint8_t *decisions = b[7].buf;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < count; i++) {
        uint32_t strip = slots[words[i] >> place_bits & slot_mask];
        uint32_t place = (words[i] & narrow) | ((uint32_t)more[i] & mask[strip]) << place_bits;
        double x = (values[i] = start[strip] + (int32_t)place) * over_sigma;
        double p = share[strip] * exp(-0.5 * (x * x));
        double u = ((double)(words[i] >> (place_bits + slot_bits)) + (double)(more[i] >> 12) * 0x1p-52) * unit;
        decisions[i] = (u < p) | (fabs(u - p) < ambiguous) << 1;
    }
    Py_END_ALLOW_THREADS;
    return release(b, 8);
}

/* -- the chain over dendrograms: dendrogram/moves.py, operation by operation --------------------------------------------- */

static double score(int64_t slots, int64_t edges) {
    if (edges <= 0 || edges >= slots)
        return 0.0;
    return (double)edges * log((double)edges / (double)slots) + (double)(slots - edges) * log1p(-1.0 * (double)edges / (double)slots);
}

static double step_bound(int64_t slots) {
    return slots > 1 ? log((double)slots) + (double)(slots - 1) * log1p(1.0 / (double)(slots - 1)) : 0.0;
}

static double larger(double first, double second) { return second > first ? second : first; }

typedef struct {
    const double *weights;
    const int64_t *pick, *turn;
    const double *coin;
    int64_t *left, *right, *parent, *size, *counts;
    double *scores;
    int64_t *head, *following;
    const int64_t *one, *other, *kind;
    int64_t *under, *done;
} Chain;

/* Whether an edge of x ends below i and k, after a move that joins these; its ends lie below two of i, j and k. */
static int is_under(const Chain *s, int64_t edge, int64_t i, int64_t j, int64_t k) {
    int64_t end = s->one[edge];
    while (end != i && end != j && end != k)
        end = s->parent[end];
    if (end == k)
        for (end = s->other[edge]; end != i && end != j;)
            end = s->parent[end];
    return end == i;
}

static void accept(const Chain *s, int64_t x, int64_t y, int64_t i, int64_t j, int64_t k) {
    int64_t to_y = -1, to_x = -1, edge, after;
    for (edge = s->head[x]; edge >= 0; edge = after) {
        int64_t *to = s->under[edge] ? &to_y : &to_x;
        after = s->following[edge];
        s->following[edge] = *to;
        *to = edge;
    }
    for (edge = s->head[y]; edge >= 0; edge = after) {
        after = s->following[edge];
        s->following[edge] = to_x;
        to_x = edge;
    }
    s->head[y] = to_y, s->head[x] = to_x;
    s->left[y] = i, s->right[y] = k, s->left[x] = y, s->right[x] = j;
    s->parent[k] = y, s->parent[j] = x;
    s->size[y] = s->size[i] + s->size[k];
}

static void step(const Chain *s, int64_t number, int64_t leaves, int private, int joint, int lazy) {
    int64_t y = leaves + s->pick[number], x = s->parent[y], odd = s->turn[number] % 2;
    int64_t i = odd ? s->right[y] : s->left[y], j = odd ? s->left[y] : s->right[y];
    int64_t k = s->left[x] == y ? s->right[x] : s->left[x];
    int64_t *at_y = s->counts + 2 * y, *at_x = s->counts + 2 * x, fresh[2] = {0, 0};
    for (int64_t edge = s->head[x]; edge >= 0; edge = s->following[edge])
        fresh[s->kind[edge] != 0] += s->under[edge] = is_under(s, edge, i, j, k);
    int64_t rest[2] = {at_x[0] + at_y[0] - fresh[0], at_x[1] + at_y[1] - fresh[1]};
    int64_t pairs_new = s->size[i] * s->size[k], pairs_rest = (s->size[i] + s->size[k]) * s->size[j];
    double *score_y = s->scores + 2 * y, *score_x = s->scores + 2 * x;
    double new_y[2] = {score(pairs_new, fresh[0]), score(pairs_new - fresh[0], fresh[1])};
    double new_x[2] = {score(pairs_rest, rest[0]), score(pairs_rest - rest[0], rest[1])};
    double ratio = s->weights[0] * (new_y[0] + new_x[0] - score_y[0] - score_x[0]);
    if (private) {
        double gain = new_y[1] + new_x[1] - score_y[1] - score_x[1], weight = s->weights[1];
        if (lazy) {
            double was_y = step_bound(s->size[i] * s->size[j] - at_y[0]), was_x = step_bound(s->size[y] * s->size[k] - at_x[0]);
            double then_y = step_bound(pairs_new - fresh[0]), then_x = step_bound(pairs_rest - rest[0]);
            double bound = larger(larger(was_y + then_x, was_x + then_y), was_x + then_x);
            weight = bound > 0.0 ? s->weights[2] / bound : 0.0;
        }
        ratio = (joint ? ratio : 0.0) + weight * gain;
        if (lazy)
            ratio = larger(ratio, -13.0);
    }
    if (!(ratio >= 0.0 || s->coin[number] < exp(ratio)))
        return;
    accept(s, x, y, i, j, k);
    for (int part = 0; part < 2; part++) {
        at_y[part] = fresh[part], at_x[part] = rest[part];
        score_y[part] = new_y[part], score_x[part] = new_x[part];
    }
    s->done[0] += 1;
    s->done[1] += private;
}

static PyObject *walk(PyObject *self, PyObject *args) {
    Py_ssize_t steps, first, leaves, every, joint, lazy;
    Py_buffer b[17];
    if (!PyArg_ParseTuple(args, "nnnnnny*y*y*y*w*w*w*w*w*w*w*w*y*y*y*w*w*", &steps, &first, &leaves, &every, &joint, &lazy, &b[0],
                          &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7], &b[8], &b[9], &b[10], &b[11], &b[12], &b[13], &b[14],
                          &b[15], &b[16]))
        return NULL;
    Chain s = {b[0].buf,  b[1].buf,  b[2].buf,  b[3].buf,  b[4].buf,  b[5].buf,  b[6].buf,  b[7].buf, b[8].buf,
               b[9].buf, b[10].buf, b[11].buf, b[12].buf, b[13].buf, b[14].buf, b[15].buf, b[16].buf};
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t number = 0; number < steps; number++) {
        int private = (first + number + 1) % every == 0;
        if (!(private && lazy && s.turn[number] > 1)) /* a lazy step stays half of the time */
            step(&s, number, leaves, private, (int)joint, (int)lazy);
    }
    Py_END_ALLOW_THREADS;
    return release(b, 17);
}

static PyMethodDef methods[] = {
    {"add_noisy_sums", add_noisy_sums, METH_VARARGS, NULL},
    {"truncate_rows", truncate_rows, METH_VARARGS, NULL},
    {"counters", counters, METH_VARARGS, NULL},
    {"look_up", look_up, METH_VARARGS, NULL},
    {"decide", decide, METH_VARARGS, NULL},
    {"walk", walk, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
