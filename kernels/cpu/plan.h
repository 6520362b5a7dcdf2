// What plan.cpp writes and attention.cpp reads. T tokens, R rows, H query heads, G kv heads, D head size.
#pragma once
#include <cstdint>

struct Item {
    int32_t first_member, num_members;  // range of Plan::members
    int32_t row;                        // of the slot table, good for every member in [start, stop)
    int32_t start, stop;                // key positions
};

struct Plan {
    const Item *items;
    const int32_t *members;   // token of each member
    const int32_t *limits;    // [T] keys that a token sees: its position + 1, or more where it sees what comes behind it
    const int32_t *owns;      // [T] its position + 1, at which a window ends
    const int32_t *partials;  // of each member: where its partial result goes, or -1 when the item is all it needs
    const int32_t *merges;    // [num_merges, 3] token, first partial, count
    const int32_t *table;     // [rows, table_stride] slots
    int64_t table_stride;
    float *partial_out;  // [num_partials, H, D]
    float *partial_lse;  // [num_partials, H, 2] largest score and sum of weights
    int32_t num_items, num_merges;
    int32_t heads, kv_heads, head_dim, threads;
};

// The rows of a step: what a plan is made for. Each column is [R].
struct Step {
    const int32_t *table;  // [rows of the table, table_stride] slots
    int64_t table_stride;
    const int32_t *rows;          // of the table
    const int32_t *first_tokens;  // ascending
    const int32_t *num_new;       // tokens, >= 1
    const int32_t *seq_lens;      // tokens, new ones included
    const int32_t *shifts;        // above 0: the row has parallel contexts; null: no row has
    const int32_t *sees;          // [T] keys that a token sees; null: those up to its own
    int32_t num_rows, threads;
};
