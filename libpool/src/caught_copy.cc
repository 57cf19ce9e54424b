#include "libpool/src/caught_copy.h"

#include <ucontext.h>

#include "proto/support/mutant.h"

#ifdef CXLPOOL_HAS_CAUGHT_COPIES

// Copies by assembly. What holds at each of their instructions, so that the handler can have the
// thread go on at .Lcaught_left:
//
//   RCX points to the CaughtRange, as it was given;
//   RSP points to the return address: nothing was pushed;
//   no register is in use that a function has to keep as it was.
asm(R"(
# More than four vectors of `size` bytes: one, from there on four at a time at multiples of `size` of
# the target, and the last four. These are loaded first: a load behind stores to addresses that
# end in the same 12 bits waits for them.
  .macro cxlpool_many_vectors size, v0, v1, v2, v3, v4, v5, v6, v7, move, move_aligned
  leaq -4*\size(%rsi,%rdx), %r10
  leaq -4*\size(%rdi,%rdx), %r11
  \move (%rsi), %\v0
  \move (%r10), %\v4
  \move \size(%r10), %\v5
  \move 2*\size(%r10), %\v6
  \move 3*\size(%r10), %\v7
  \move %\v0, (%rdi)
  movq %rdi, %rax
  orq $\size-1, %rdi
  incq %rdi
  subq %rdi, %rax
  subq %rax, %rsi
  jmp 3f
  .p2align 5
2:
  \move (%rsi), %\v0
  \move \size(%rsi), %\v1
  \move 2*\size(%rsi), %\v2
  \move 3*\size(%rsi), %\v3
  addq $4*\size, %rsi
  \move_aligned %\v0, (%rdi)
  \move_aligned %\v1, \size(%rdi)
  \move_aligned %\v2, 2*\size(%rdi)
  \move_aligned %\v3, 3*\size(%rdi)
  addq $4*\size, %rdi
3:
  cmpq %r10, %rsi
  jb 2b
  \move %\v4, (%r11)
  \move %\v5, \size(%r11)
  \move %\v6, 2*\size(%r11)
  \move %\v7, 3*\size(%r11)
  movl $1, %eax
  .endm

  .text
  .p2align 6
.Lcaught_begin:

  .globl cxlpool_caught_lines_32
  .hidden cxlpool_caught_lines_32
  .type cxlpool_caught_lines_32, @function
cxlpool_caught_lines_32:
  .cfi_startproc
  testq %rdx, %rdx
  je 2f
1:
  vmovdqu (%rsi), %ymm0
  vmovdqu 32(%rsi), %ymm1
  vmovntdq %ymm0, (%rdi)
  vmovntdq %ymm1, 32(%rdi)
  addq $64, %rsi
  addq $64, %rdi
  subq $64, %rdx
  jne 1b
2:
  movl $1, %eax
  vzeroupper
  ret
  .cfi_endproc
  .size cxlpool_caught_lines_32, . - cxlpool_caught_lines_32

  .p2align 4
  .globl cxlpool_caught_lines_64
  .hidden cxlpool_caught_lines_64
  .type cxlpool_caught_lines_64, @function
cxlpool_caught_lines_64:
  .cfi_startproc
  testq %rdx, %rdx
  je 2f
1:
  vmovdqu64 (%rsi), %zmm0
  vmovntdq %zmm0, (%rdi)
  addq $64, %rsi
  addq $64, %rdi
  subq $64, %rdx
  jne 1b
2:
  movl $1, %eax
  vzeroupper
  ret
  .cfi_endproc
  .size cxlpool_caught_lines_64, . - cxlpool_caught_lines_64

  .p2align 6
  .globl cxlpool_caught_copy_64
  .hidden cxlpool_caught_copy_64
  .type cxlpool_caught_copy_64, @function
cxlpool_caught_copy_64:
  .cfi_startproc
  cmpq $64, %rdx
  jb cxlpool_caught_copy_32
  vmovdqu64 (%rsi), %zmm16
  ja 1f
  vmovdqu64 %zmm16, (%rdi)
  movl $1, %eax
  ret
1:
  cmpq $128, %rdx
  ja 1f
  vmovdqu64 -64(%rsi,%rdx), %zmm17
  vmovdqu64 %zmm16, (%rdi)
  vmovdqu64 %zmm17, -64(%rdi,%rdx)
  movl $1, %eax
  ret
1:
  cmpq $256, %rdx
  ja 1f
  vmovdqu64 64(%rsi), %zmm17
  vmovdqu64 -128(%rsi,%rdx), %zmm18
  vmovdqu64 -64(%rsi,%rdx), %zmm19
  vmovdqu64 %zmm16, (%rdi)
  vmovdqu64 %zmm17, 64(%rdi)
  vmovdqu64 %zmm18, -128(%rdi,%rdx)
  vmovdqu64 %zmm19, -64(%rdi,%rdx)
  movl $1, %eax
  ret
1:
  cxlpool_many_vectors 64, zmm16, zmm17, zmm18, zmm19, zmm20, zmm21, zmm22, zmm23, vmovdqu64, vmovdqa64
  ret
  .cfi_endproc
  .size cxlpool_caught_copy_64, . - cxlpool_caught_copy_64

# Up to 128 bytes: the first and the last of them, which may overlap, are loaded and then stored.
  .p2align 6
  .globl cxlpool_caught_copy_32
  .hidden cxlpool_caught_copy_32
  .type cxlpool_caught_copy_32, @function
cxlpool_caught_copy_32:
  .cfi_startproc
  cmpq $32, %rdx
  jb 4f
  cmpq $64, %rdx
  ja 1f
  vmovdqu (%rsi), %ymm0
  vmovdqu -32(%rsi,%rdx), %ymm1
  vmovdqu %ymm0, (%rdi)
  vmovdqu %ymm1, -32(%rdi,%rdx)
  movl $1, %eax
  vzeroupper
  ret
1:
  cmpq $128, %rdx
  ja 1f
  vmovdqu (%rsi), %ymm0
  vmovdqu 32(%rsi), %ymm1
  vmovdqu -64(%rsi,%rdx), %ymm2
  vmovdqu -32(%rsi,%rdx), %ymm3
  vmovdqu %ymm0, (%rdi)
  vmovdqu %ymm1, 32(%rdi)
  vmovdqu %ymm2, -64(%rdi,%rdx)
  vmovdqu %ymm3, -32(%rdi,%rdx)
  movl $1, %eax
  vzeroupper
  ret
1:
  cxlpool_many_vectors 32, ymm0, ymm1, ymm2, ymm3, ymm4, ymm5, ymm6, ymm7, vmovdqu, vmovdqa
  vzeroupper
  ret

# Less than 32.
4:
  cmpq $16, %rdx
  jb 5f
  movups (%rsi), %xmm0
  movups -16(%rsi,%rdx), %xmm1
  movups %xmm0, (%rdi)
  movups %xmm1, -16(%rdi,%rdx)
  movl $1, %eax
  ret
5:
  cmpq $8, %rdx
  jae 8f
  cmpq $4, %rdx
  jae 7f
  testq %rdx, %rdx
  je 6f
  movzbl (%rsi), %eax
  movzbl -1(%rsi,%rdx), %r10d
  movq %rdx, %r9
  shrq $1, %r9
  movzbl (%rsi,%r9), %r11d
  movb %al, (%rdi)
  movb %r11b, (%rdi,%r9)
  movb %r10b, -1(%rdi,%rdx)
6:
  movl $1, %eax
  ret
7:
  movl (%rsi), %eax
  movl -4(%rsi,%rdx), %r10d
  movl %eax, (%rdi)
  movl %r10d, -4(%rdi,%rdx)
  movl $1, %eax
  ret
8:
  movq (%rsi), %rax
  movq -8(%rsi,%rdx), %r10
  movq %rax, (%rdi)
  movl $1, %eax
  movq %r10, -8(%rdi,%rdx)
.Lcaught_end:
  ret
  .cfi_endproc
  .size cxlpool_caught_copy_32, . - cxlpool_caught_copy_32

.Lcaught_left:
  .cfi_startproc
  xorl %eax, %eax
  vzeroupper
  ret
  .cfi_endproc
)" CXLPOOL_CAUGHT(".Lcaught_begin", ".Lcaught_end", ".Lcaught_left"));

namespace {

// As CXLPOOL_CAUGHT lays them out: each distance is from its own place.
struct Entry {
  int32_t begin, end, left;

  static uintptr_t Place(const int32_t& distance) {
    return reinterpret_cast<uintptr_t>(&distance) + static_cast<uintptr_t>(distance);
  }
};

}  // namespace

// The bounds of the section, which the linker defines.
extern "C" __attribute__((visibility("hidden"))) const Entry __start_cxlpool_caught[];
extern "C" __attribute__((visibility("hidden"))) const Entry __stop_cxlpool_caught[];

namespace cxlpool::libpool {

bool HasCaughtCopies() { return __builtin_cpu_supports("avx2"); }

bool LeaveCaughtCopy(uintptr_t address, size_t bytes, void* context) {
  // A foreign handler that passes on to ours may know of no context.
  if (context == nullptr) return false;
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto at = static_cast<uintptr_t>(registers[REG_RIP]);
  // The last instruction of an entry, which is a store, has 5 bytes at least.
  const uintptr_t short_by = CXLPOOL_MUTANT("caught-code-one-short") ? 5 : 0;
  for (const Entry* entry = __start_cxlpool_caught; entry != __stop_cxlpool_caught; ++entry) {
    if (at < Entry::Place(entry->begin) || at >= Entry::Place(entry->end) - short_by) continue;
    const auto& range = *reinterpret_cast<const CaughtRange*>(registers[REG_RCX]);
    const auto begin = reinterpret_cast<uintptr_t>(range.begin);
    const uintptr_t end = begin + range.bytes.load(std::memory_order_acquire);
    const bool is_its_own = address < end && begin < address + bytes;
    if (!is_its_own && !CXLPOOL_MUTANT("caught-copy-takes-any-fault")) return false;
    registers[REG_RIP] = static_cast<greg_t>(Entry::Place(entry->left));
    return true;
  }
  return false;
}

}  // namespace cxlpool::libpool

#else

namespace cxlpool::libpool {

bool HasCaughtCopies() { return false; }

bool LeaveCaughtCopy(uintptr_t, size_t, void*) { return false; }

}  // namespace cxlpool::libpool

#endif
