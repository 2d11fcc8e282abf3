//! Values that know whether they were touched, so that what is made of them is made anew only then.

use std::ops::{Deref, DerefMut};

/// A value, and whether anybody has had it in hand to change it. Two are equal if their values are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tracked<T> {
    value: T,
    touched: bool,
}

impl<T> Tracked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, touched: false }
    }

    /// Whether it was touched since this was asked last.
    pub(super) fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.touched)
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Tracked<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.touched = true;
        &mut self.value
    }
}

impl<T: PartialEq> PartialEq for Tracked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
