/* Configuration of AMX's tiles, for files that are compiled for AMX (Intel 64 and IA-32 Architectures Software
 * Developer's Manual, volume 1, chapter 18). Tests run such files with emulated instructions (tests/cpu). */
#ifndef LT_BACKEND_CPU_AMX_H
#define LT_BACKEND_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

enum { LT_AMX_TILES = 8, LT_AMX_ROWS = 16, LT_AMX_ROW_BYTES = 64 };

/* Operand of LDTILECFG. */
typedef struct lt_amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} lt_amx_config;
_Static_assert(sizeof(lt_amx_config) == 64, "the size of the operand of LDTILECFG");

/* Makes the compiler write memory before the instructions that follow: GCC 12 does not know that tile loads read it. */
static inline void lt_amx_publish(const void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* Configures this thread's tiles, all of 16 rows of 64 bytes. Released after each call, as oneDNN uses tiles too. */
static inline void lt_amx_configure(void)
{
    lt_amx_config c = {.palette = 1};
    for (int i = 0; i < LT_AMX_TILES; i++) {
        c.rows[i] = LT_AMX_ROWS;
        c.row_bytes[i] = LT_AMX_ROW_BYTES;
    }
    lt_amx_publish(&c);
    _tile_loadconfig(&c);
}

static inline void lt_amx_release(void)
{
    _tile_release();
}

#endif
