/* Symbols of an ELF shared object, by the section header of its dynamic symbol table: System V ABI, chapters 4 and 5.
 * Every offset comes from the file, so each range is checked against its size. For 64-bit machines. */

#include "base/encoding/sha256.h"
#include "base/os.h"
#include "base/text.h"
#include "elf.h"

#include "lather/ext/fail.h"

#if LT_LINUX
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

typedef struct elf {
    const char *data;
    size_t bytes;
    Elf64_Ehdr head;
} elf;

/* Returns a range of the file, or NULL if it is not within the file. */
static const char *find_range(const elf *f, uint64_t offset, uint64_t bytes)
{
    return offset <= f->bytes && bytes <= f->bytes - offset ? f->data + offset : NULL;
}

/* Copies row number index of a table; false if it is not within the file. */
static bool read_row(const elf *f, uint64_t table, uint64_t index, void *row, size_t bytes)
{
    if (table > f->bytes || index > f->bytes)
        return false; /* the sum below could overflow */
    const char *at = find_range(f, table + index * bytes, bytes);
    if (at)
        memcpy(row, at, bytes);
    return at != NULL;
}

/* Returns the text at an offset within a range of the file; NULL if it does not end within the range. */
static const char *find_text(const elf *f, uint64_t table, uint64_t bytes, uint64_t offset)
{
    const char *range = find_range(f, table, bytes);
    return range && offset < bytes && memchr(range + offset, 0, bytes - offset) ? range + offset
                                                                                : NULL;
}

/* Returns the header of the file that this code was loaded from. */
static const Elf64_Ehdr *own_header(void)
{
    static const char anchor = 0;
    Dl_info info;
    return dladdr(&anchor, &info) ? info.dli_fbase : NULL;
}

lt_status lt_elf_check(const void *file, size_t bytes)
{
    const elf f = {.data = file, .bytes = bytes};
    const Elf64_Ehdr *own = own_header();
    Elf64_Ehdr head = {0};
    const bool whole = read_row(&f, 0, 0, &head, sizeof head);
    if (bytes < SELFMAG || memcmp(file, ELFMAG, SELFMAG) != 0)
        return lt_fail(LT_E_FORMAT, "not an ELF file: a plugin is compiled by cc -shared -fPIC");
    if (!whole || !find_range(&f, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr)))
        return lt_fail(LT_E_FORMAT, "%zu bytes: truncated", bytes);
    if (own
        && (memcmp(head.e_ident, own->e_ident, EI_OSABI) != 0 || head.e_machine != own->e_machine))
        return lt_fail(LT_E_FORMAT,
                       "for another machine (ELF machine %d, class %d; this program "
                       "is for machine %d, class %d): compile it here",
                       head.e_machine, head.e_ident[EI_CLASS], own->e_machine,
                       own->e_ident[EI_CLASS]);
    if (head.e_type != ET_DYN)
        return lt_fail(LT_E_FORMAT, "not a shared object: compile it by cc -shared -fPIC");
    return LT_OK;
}

/* Returns the text of a symbol, in its section of the file; NULL if absent. */
static const char *text_of(const elf *f, const Elf64_Sym *symbol)
{
    Elf64_Shdr s;
    return read_row(f, f->head.e_shoff, symbol->st_shndx, &s, sizeof s) && s.sh_type != SHT_NOBITS
               ? find_text(f, s.sh_offset, s.sh_size, symbol->st_value - s.sh_addr)
               : NULL;
}

/* Finds a defined symbol in a table of dynamic symbols. */
static bool find_in_table(const elf *f, const Elf64_Shdr *table, const char *name, Elf64_Sym *out)
{
    Elf64_Shdr texts;
    if (!read_row(f, f->head.e_shoff, table->sh_link, &texts, sizeof texts))
        return false;
    const uint64_t count = table->sh_size / sizeof *out;
    for (uint64_t i = 0; i < count && read_row(f, table->sh_offset, i, out, sizeof *out); i++) {
        const char *found = find_text(f, texts.sh_offset, texts.sh_size, out->st_name);
        if (found && out->st_shndx != SHN_UNDEF && !strcmp(found, name))
            return true;
    }
    return false;
}

bool lt_elf_find_symbol(const void *file, size_t bytes, const char *name, const char **text)
{
    elf f = {.data = file, .bytes = bytes};
    Elf64_Shdr section;
    Elf64_Sym symbol;
    *text = NULL;
    if (!read_row(&f, 0, 0, &f.head, sizeof f.head))
        return false;
    for (int i = 0; i < f.head.e_shnum; i++)
        if (read_row(&f, f.head.e_shoff, (uint64_t)i, &section, sizeof section)
            && section.sh_type == SHT_DYNSYM && find_in_table(&f, &section, name, &symbol)) {
            *text = text_of(&f, &symbol);
            return true;
        }
    return false;
}

typedef struct build_ids {
    uint8_t data[128];
    size_t bytes;
} build_ids;

static size_t padded(size_t bytes)
{
    return (bytes + 3) & ~(size_t)3;
}

/* Appends the build id of a segment of notes, as the loader mapped it. */
static void add_build_id(build_ids *ids, const uint8_t *notes, size_t bytes)
{
    Elf64_Nhdr note;
    for (size_t at = 0; at + sizeof note <= bytes;) {
        memcpy(&note, notes + at, sizeof note);
        const size_t id = at + sizeof note + padded(note.n_namesz), end = id + note.n_descsz;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU && end <= bytes
            && ids->bytes + note.n_descsz <= sizeof ids->data) {
            memcpy(ids->data + ids->bytes, notes + id, note.n_descsz);
            ids->bytes += note.n_descsz;
        }
        at = id + padded(note.n_descsz);
    }
}

/* Called for each loaded file, the program first: its name is empty. */
static int add_build_ids_of_file(struct dl_phdr_info *file, size_t bytes, void *ids)
{
    (void)bytes;
    const bool is_own = !*file->dlpi_name || strstr(file->dlpi_name, "/liblather.so");
    for (int i = 0; is_own && i < file->dlpi_phnum; i++) {
        const Elf64_Phdr *segment = &file->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            add_build_id(ids, (const uint8_t *)(file->dlpi_addr + segment->p_vaddr),
                         segment->p_memsz);
    }
    return 0;
}

void lt_elf_build_id(char text[LT_BUILD_ID_TEXT])
{
    build_ids ids = {.bytes = 0};
    uint8_t hash[LT_SHA256_BYTES];
    dl_iterate_phdr(add_build_ids_of_file, &ids);
    lt_sha256(hash, ids.data, ids.bytes);
    text[0] = 0;
    if (ids.bytes)
        lt_text_hex(text, hash, LT_BUILD_ID_TEXT / 2);
}
#else
void lt_elf_build_id(char text[LT_BUILD_ID_TEXT])
{
    text[0] = 0;
}

lt_status lt_elf_check(const void *file, size_t bytes)
{
    (void)file;
    (void)bytes;
    return lt_fail(LT_E_UNSUPPORTED, "this system has no ELF files: compile it into the program");
}

bool lt_elf_find_symbol(const void *file, size_t bytes, const char *name, const char **text)
{
    (void)file;
    (void)bytes;
    (void)name;
    *text = NULL;
    return false;
}
#endif
