//! The allocator of a component: a fixed arena in front of the allocator of the standard library.
//!
//! A run lives for microseconds in memory of its own that is thrown away as a whole. What costs is growing the memory:
//! two system calls of the host per run, which serialise all threads. A hook that stays within the arena never grows.
//! Memory is given back when the last allocation is freed or when nothing is left, so a long-lived filter does not
//! exhaust it; what does not fit goes to the standard library.

#[cfg(test)]
mod tests;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

/// Enough for a context of some hundred kilobytes; it is not part of the file, and untouched pages cost nothing.
const ARENA_BYTES: usize = 1 << 20;

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ARENA: Arena = Arena::new();

struct Arena {
    bytes: UnsafeCell<[u8; ARENA_BYTES]>,
    /// Bytes from the start that are in use or lost.
    used: Cell<usize>,
    /// Allocations in the arena that were not freed.
    live: Cell<usize>,
}

#[expect(unsafe_code, reason = "a component has one thread: the target has no atomics, and none can be started")]
unsafe impl Sync for Arena {}

impl Arena {
    const fn new() -> Self {
        Self { bytes: UnsafeCell::new([0; ARENA_BYTES]), used: Cell::new(0), live: Cell::new(0) }
    }

    fn start(&self) -> usize {
        self.bytes.get() as usize
    }

    /// The place of an address in the arena, if it is from there.
    fn offset(&self, address: *mut u8) -> Option<usize> {
        (address as usize).checked_sub(self.start()).filter(|offset| *offset < ARENA_BYTES)
    }

    fn take(&self, layout: Layout) -> Option<*mut u8> {
        let start = self.start();
        let place = (start + self.used.get()).checked_next_multiple_of(layout.align())? - start;
        let end = place.checked_add(layout.size())?;
        if end > ARENA_BYTES || layout.size() == 0 {
            return None;
        }
        self.used.set(end);
        self.live.set(self.live.get() + 1);
        Some(self.bytes.get().cast::<u8>().wrapping_add(place))
    }
}

#[expect(unsafe_code, reason = "an allocator: each block lies in the arena and overlaps no other live one")]
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            Some(address) => address,
            // SAFETY: the caller keeps the rules of `alloc` for both allocators.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        let Some(offset) = self.offset(address) else {
            // SAFETY: not from the arena, so it is from `System`.
            return unsafe { System.dealloc(address, layout) };
        };
        let live = self.live.get() - 1;
        self.live.set(live);
        if live == 0 {
            self.used.set(0);
        } else if offset + layout.size() == self.used.get() {
            self.used.set(offset);
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(offset) = self.offset(address) else {
            // SAFETY: not from the arena, so it is from `System`.
            return unsafe { System.realloc(address, layout, new_size) };
        };
        // The last block grows and shrinks in place: strings and vectors that are being filled.
        let is_last = offset + layout.size() == self.used.get();
        if is_last && new_size <= ARENA_BYTES - offset {
            self.used.set(offset + new_size);
            return address;
        }
        if new_size <= layout.size() {
            return address;
        }
        // SAFETY: alignment is unchanged and `realloc` forbids a size that overflows with it.
        let new_address = unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !new_address.is_null() {
            // SAFETY: both blocks are live and apart, and the old one is the smaller.
            unsafe {
                std::ptr::copy_nonoverlapping(address, new_address, layout.size());
                self.dealloc(address, layout);
            }
        }
        new_address
    }
}
