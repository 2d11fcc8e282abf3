//! Blocks are aligned, apart from each other, keep what is in them, and come back.

#![expect(unsafe_code, reason = "an allocator is called with the rules of `GlobalAlloc`, which the tests keep")]

use super::*;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout")
}

/// An arena that is not the allocator of this program, on the heap because of its size.
fn arena() -> Box<Arena> {
    static EMPTY: Arena = Arena::new();
    let mut arena = Box::<Arena>::new_uninit();
    // SAFETY: both are arenas and apart; nothing ever allocates from `EMPTY`.
    unsafe {
        std::ptr::copy_nonoverlapping(&raw const EMPTY, arena.as_mut_ptr(), 1);
        arena.assume_init()
    }
}

#[test]
fn a_block_at_the_end_grows_in_place_and_others_move() {
    let arena = arena();
    // SAFETY: each block is freed with its last layout, and used only while it lives.
    unsafe {
        let first = arena.alloc(layout(10, 1));
        first.write_bytes(7, 10);
        assert_eq!(arena.realloc(first, layout(10, 1), 100), first, "it is the last");
        let second = arena.alloc(layout(8, 8));
        assert_eq!(second as usize % 8, 0);
        let moved = arena.realloc(first, layout(100, 1), 200);
        assert_ne!(moved, first);
        assert_eq!(std::slice::from_raw_parts(moved, 10), [7; 10]);
        assert_eq!(arena.realloc(second, layout(8, 8), 4), second, "shrinking never moves");
        arena.dealloc(moved, layout(200, 1));
        arena.dealloc(second, layout(4, 8));
    }
    assert_eq!((arena.used.get(), arena.live.get()), (0, 0), "nothing is left");
}

#[test]
fn what_does_not_fit_goes_to_the_standard_library() {
    let arena = arena();
    // SAFETY: as above.
    unsafe {
        let big = arena.alloc(layout(ARENA_BYTES + 1, 1));
        assert!(!big.is_null() && arena.offset(big).is_none());
        let fits = arena.alloc(layout(ARENA_BYTES - 8, 1));
        assert!(arena.offset(fits).is_some());
        let outgrown = arena.realloc(fits, layout(ARENA_BYTES - 8, 1), ARENA_BYTES + 8);
        assert!(!outgrown.is_null() && arena.offset(outgrown).is_none());
        let back = arena.realloc(outgrown, layout(ARENA_BYTES + 8, 1), 16);
        arena.dealloc(back, layout(16, 1));
        arena.dealloc(big, layout(ARENA_BYTES + 1, 1));
    }
    assert_eq!((arena.used.get(), arena.live.get()), (0, 0));
}

/// A long run of random calls, with each block filled by a pattern of its own that must still be there when it is freed.
#[test]
fn blocks_never_overlap() {
    let arena = arena();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let check = |block: *mut u8, size: usize, pattern: u8| {
        // SAFETY: the block lives and has this size.
        let bytes = unsafe { std::slice::from_raw_parts(block, size) };
        assert!(bytes.iter().all(|byte| *byte == pattern), "another block was written over it");
    };
    let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
    let mut from_arena = 0;
    for turn in 0..20_000 {
        let pattern = turn as u8;
        match next(5) {
            0 | 1 if blocks.len() < 200 => {
                let layout = layout(1 + next(10_000), 1 << next(6));
                // SAFETY: the size is not zero.
                let block = unsafe { arena.alloc(layout) };
                assert_eq!(block as usize % layout.align(), 0);
                from_arena += usize::from(arena.offset(block).is_some());
                // SAFETY: the block has this size.
                unsafe { block.write_bytes(pattern, layout.size()) };
                blocks.push((block, layout, pattern));
            }
            2 if !blocks.is_empty() => {
                let index = next(blocks.len());
                let (block, old, pattern) = blocks[index];
                let new = layout(1 + next(20_000), old.align());
                // SAFETY: the block was made with this layout.
                let moved = unsafe { arena.realloc(block, old, new.size()) };
                assert_eq!(moved as usize % new.align(), 0);
                check(moved, old.size().min(new.size()), pattern);
                // SAFETY: the block has this size now.
                unsafe { moved.write_bytes(pattern, new.size()) };
                blocks[index] = (moved, new, pattern);
            }
            _ if !blocks.is_empty() => {
                let (block, layout, pattern) = blocks.swap_remove(next(blocks.len()));
                check(block, layout.size(), pattern);
                // SAFETY: the block was made with this layout and is forgotten now.
                unsafe { arena.dealloc(block, layout) };
            }
            _ => {}
        }
    }
    for (block, layout, pattern) in blocks {
        check(block, layout.size(), pattern);
        // SAFETY: as above.
        unsafe { arena.dealloc(block, layout) };
    }
    assert!(from_arena > 50, "the arena was used: {from_arena}");
    assert_eq!((arena.used.get(), arena.live.get()), (0, 0));
}
