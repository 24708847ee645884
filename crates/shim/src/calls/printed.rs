//! Printing to a descriptor within the C library (dprintf(3)). Its parameters are as many as the caller likes: they are
//! passed on as they came, in the registers and on the stack, once the file is known to be real.
#![allow(unsafe_code)]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use nix::errno::Errno;

use super::refused::before;
use crate::real;

/// Before it prints. Returns where it does; null: it may not, and the error number says why.
fn prints(fd: c_int, name: &'static CStr) -> *mut c_void {
    let errno = Errno::last();
    match before(fd, "dprintf writes it") {
        Ok(()) => {
            let next = real::next(name);
            if next.is_null() { Errno::ENOSYS } else { errno }.set();
            next
        }
        Err(errno) => {
            errno.set();
            ptr::null_mut()
        }
    }
}

macro_rules! printf {
    ($($name:ident, $before:ident, $text:literal;)*) => {$(
        extern "C" fn $before(fd: c_int) -> *mut c_void {
            prints(fd, $text)
        }

        /// As dprintf(3).
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // The registers that parameters are passed in (System V ABI, 3.2.3), and `al`, which tells how many of them
            // are vectors.
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movaps [rsp + 64], xmm0",
                "movaps [rsp + 80], xmm1",
                "movaps [rsp + 96], xmm2",
                "movaps [rsp + 112], xmm3",
                "movaps [rsp + 128], xmm4",
                "movaps [rsp + 144], xmm5",
                "movaps [rsp + 160], xmm6",
                "movaps [rsp + 176], xmm7",
                "call {before}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movaps xmm0, [rsp + 64]",
                "movaps xmm1, [rsp + 80]",
                "movaps xmm2, [rsp + 96]",
                "movaps xmm3, [rsp + 112]",
                "movaps xmm4, [rsp + 128]",
                "movaps xmm5, [rsp + 144]",
                "movaps xmm6, [rsp + 160]",
                "movaps xmm7, [rsp + 176]",
                "leave",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2:",
                "mov eax, -1",
                "ret",
                before = sym $before,
            )
        }

        /// As dprintf(3).
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // The registers that parameters are passed in (AAPCS64, 6.8.2).
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-208]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp q0, q1, [sp, #80]",
                "stp q2, q3, [sp, #112]",
                "stp q4, q5, [sp, #144]",
                "stp q6, q7, [sp, #176]",
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp q0, q1, [sp, #80]",
                "ldp q2, q3, [sp, #112]",
                "ldp q4, q5, [sp, #144]",
                "ldp q6, q7, [sp, #176]",
                "ldp x29, x30, [sp], #208",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "mov w0, #-1",
                "ret",
                before = sym $before,
            )
        }
    )*};
}
printf! {
    dprintf, before_dprintf, c"dprintf";
    vdprintf, before_vdprintf, c"vdprintf";
    __dprintf_chk, before_dprintf_checked, c"__dprintf_chk";
    __vdprintf_chk, before_vdprintf_checked, c"__vdprintf_chk";
}
