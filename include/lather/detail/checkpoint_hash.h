/** Hashes of the state that a checkpoint holds. */
#ifndef LATHER_DETAIL_CHECKPOINT_HASH_H
#define LATHER_DETAIL_CHECKPOINT_HASH_H

#include "lather/checkpoint.h"
#include "lather/detail/json.h"

enum { LT_HASH_TEXT = 65 }; /**< bytes of a SHA-256 in hexadecimal digits, with its NUL */

/** SHA-256 of a state. Zero it first. */
typedef struct lt_checkpoint_hashes {
    char all[LT_HASH_TEXT]; /**< hash of `text`; "" on ranks above 0 */
    /** {"step", "tensors":{NAME:HASH}, "numbers":{NAME:VALUE}, "sha256":all} */
    lt_json_writer record;
    /** "NAME HASH" of each tensor, then "NAME VALUE" of each number of the optimizer, a line each */
    lt_json_writer text;
} lt_checkpoint_hashes;

/** Hashes what lt_checkpoint_save() would store now, without local steps: of each tensor the bytes that
 *  its file would have. Collective. Clear *out whatever it returns. Errors: LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_checkpoint_hash(const lt_checkpoint_contents *parts,
                                                  const lt_checkpoint_state *state,
                                                  lt_checkpoint_hashes *out);
LT_API void lt_checkpoint_hashes_clear(lt_checkpoint_hashes *hashes);

#endif
