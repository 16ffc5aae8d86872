/* Compile files of HLSL with FXC or DXC: `hlsl_compile fxc cs_5_1 FILE...`, `hlsl_compile dxc cs_6_6 FILE...`.

   Runs under Wine. Prints a line for each file: its name, milliseconds of a processor, bytes and the error, which is empty if there is
   none. The options are those of wgpu. DXC validates what it writes, with the validator that it contains. */

#include <windows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METHOD(object, index, ...) ((HRESULT(WINAPI *)(__VA_ARGS__))(*(void ***)(object))[index])

typedef struct {
    const void *data;
    SIZE_T size;
    UINT encoding;
} Buffer;

typedef HRESULT(WINAPI *Compile)(const void *, SIZE_T, const char *, const void *, void *, const char *, const char *,
                                 UINT, UINT, void **, void **);
typedef HRESULT(WINAPI *Create)(const GUID *, const GUID *, void **);

static const GUID COMPILER = {0x73e22d93, 0xe6ce, 0x47f3, {0xb5, 0xbf, 0xf0, 0x66, 0x4f, 0x39, 0xc1, 0xb0}};
static const GUID COMPILER3 = {0x228b4687, 0x5a6a, 0x4730, {0x90, 0x0c, 0x97, 0x02, 0xb2, 0x20, 0x3f, 0x54}};
static const GUID RESULT = {0x58346cda, 0xdde7, 0x4497, {0x94, 0x61, 0x6f, 0x87, 0xaf, 0x5e, 0x06, 0x59}};

enum { OPTION_STRICT = 1 << 11, ENCODING_UTF8 = 65001 };
/* Methods of IDxcCompiler3, IDxcOperationResult and ID3DBlob, by their positions. */
enum { SLOT_COMPILE = 3, SLOT_STATUS = 3, SLOT_BLOB = 4, SLOT_ERRORS = 5, SLOT_DATA = 3, SLOT_SIZE = 4 };

static const char *data_of(void *blob) { return ((const char *(WINAPI *)(void *))(*(void ***)blob)[SLOT_DATA])(blob); }
static SIZE_T size_of(void *blob) { return ((SIZE_T(WINAPI *)(void *))(*(void ***)blob)[SLOT_SIZE])(blob); }

static ULONGLONG processor_time(void) { /* in milliseconds: other processes may have the processor meanwhile */
    FILETIME unused, kernel, user;
    GetProcessTimes(GetCurrentProcess(), &unused, &unused, &kernel, &user);
    ULONGLONG ticks = ((ULONGLONG)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime) +
                      ((ULONGLONG)user.dwHighDateTime << 32 | user.dwLowDateTime);
    return ticks / 10000;
}

static char *read_file(const char *path, long *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    *size = (long)fread(text, 1, *size, file);
    text[*size] = 0;
    fclose(file);
    return text;
}

static HRESULT by_dxc(void *compiler, const char *model, const char *text, long size, void **code, void **errors) {
    wchar_t wide[32];
    MultiByteToWideChar(CP_ACP, 0, model, -1, wide, 32);
    const wchar_t *arguments[] = {L"-E", L"main", L"-T", wide, L"-HV", L"2018", L"-enable-16bit-types",
                                  L"-no-warnings"};
    Buffer source = {text, size, ENCODING_UTF8};
    void *result = NULL;
    HRESULT status = METHOD(compiler, SLOT_COMPILE, void *, Buffer *, const wchar_t **, UINT32, void *, const GUID *,
                            void **)(compiler, &source, arguments, 8, NULL, &RESULT, &result);
    if (!result) return status < 0 ? status : E_FAIL;
    METHOD(result, SLOT_STATUS, void *, HRESULT *)(result, &status);
    METHOD(result, SLOT_BLOB, void *, void **)(result, code);
    METHOD(result, SLOT_ERRORS, void *, void **)(result, errors);
    return status;
}

int main(int count, char **arguments) {
    int fxc = count > 1 && !strcmp(arguments[1], "fxc");
    HMODULE library = LoadLibraryA(fxc ? "d3dcompiler_47.dll" : "dxcompiler.dll");
    void *compiler = NULL;
    Compile compile = library ? (Compile)GetProcAddress(library, "D3DCompile") : NULL;
    Create create = library ? (Create)GetProcAddress(library, "DxcCreateInstance") : NULL;
    if (count < 3 || (fxc ? !compile : !create || create(&COMPILER, &COMPILER3, &compiler) < 0)) {
        fprintf(stderr, "the compiler cannot be loaded: %lu\n", GetLastError());
        return 2;
    }
    for (int i = 3; i < count; i++) {
        long size = 0;
        char *text = read_file(arguments[i], &size);
        void *code = NULL, *errors = NULL;
        ULONGLONG start = processor_time();
        HRESULT status = E_FAIL;
        if (text && fxc)
            status = compile(text, size, arguments[i], NULL, NULL, "main", arguments[2], OPTION_STRICT, 0, &code, &errors);
        else if (text)
            status = by_dxc(compiler, arguments[2], text, size, &code, &errors);
        printf("%s\t%lu\t%lu\t", arguments[i], (unsigned long)(processor_time() - start),
               (unsigned long)(status >= 0 && code ? size_of(code) : 0));
        if (status < 0) {
            printf("%08lx ", (unsigned long)status);
            SIZE_T length = errors ? size_of(errors) : 0;
            for (SIZE_T at = 0; at < length && at < 700; at++) {
                char c = data_of(errors)[at];
                putchar(c < ' ' ? ' ' : c);
            }
        }
        putchar('\n');
        fflush(stdout);
        free(text);
    }
    return 0;
}
