//! Values that are bound to a query or read from a row, for every engine.

use std::borrow::Cow;

use toft_core::store::Result;

/// One bound value; absent values keep their type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Text(Option<Cow<'a, str>>),
    Int(Option<i64>),
    Real(Option<f64>),
}

#[cfg(feature = "postgres")]
impl Value<'_> {
    /// An owned copy of the value.
    pub(crate) fn keep(&self) -> Value<'static> {
        match self {
            Self::Text(text) => Value::Text(text.as_ref().map(|text| Cow::Owned(text.clone().into_owned()))),
            Self::Int(number) => Value::Int(*number),
            Self::Real(number) => Value::Real(*number),
        }
    }
}

/// A type that can be bound.
pub(crate) trait Bind {
    /// The value if absent.
    const ABSENT: Value<'static>;
    fn bind(&self) -> Value<'_>;
}

impl Bind for str {
    const ABSENT: Value<'static> = Value::Text(None);
    fn bind(&self) -> Value<'_> {
        Value::Text(Some(Cow::Borrowed(self)))
    }
}

impl Bind for String {
    const ABSENT: Value<'static> = Value::Text(None);
    fn bind(&self) -> Value<'_> {
        self.as_str().bind()
    }
}

macro_rules! numbers {
    ($($type:ty as $variant:ident($into:ty);)*) => {
        $(
            impl Bind for $type {
                const ABSENT: Value<'static> = Value::$variant(None);
                fn bind(&self) -> Value<'_> {
                    Value::$variant(Some(*self as $into))
                }
            }
        )*
    };
}

numbers! {
    i64 as Int(i64);
    u32 as Int(i64);
    u64 as Int(i64);
    bool as Int(i64);
    f64 as Real(f64);
}

impl<T: Bind + ?Sized> Bind for &T {
    const ABSENT: Value<'static> = T::ABSENT;
    fn bind(&self) -> Value<'_> {
        (**self).bind()
    }
}

impl<T: Bind> Bind for Option<T> {
    const ABSENT: Value<'static> = T::ABSENT;
    fn bind(&self) -> Value<'_> {
        self.as_ref().map_or(T::ABSENT, Bind::bind)
    }
}

/// Values in the order of a query's parameters.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        [$($crate::value::Bind::bind(&$value)),*]
    };
}
pub(crate) use values;

/// Owned values.
#[cfg(feature = "postgres")]
macro_rules! kept {
    ($($value:expr),* $(,)?) => {
        [$($crate::value::Bind::bind(&$value).keep()),*]
    };
}
#[cfg(feature = "postgres")]
pub(crate) use kept;

/// One row of an answer, by column.
pub(crate) trait Row {
    fn text(&self, column: usize) -> Result<Option<String>>;
    fn int(&self, column: usize) -> Result<Option<i64>>;
    fn real(&self, column: usize) -> Result<Option<f64>>;
}
