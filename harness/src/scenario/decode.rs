//! Decodes a part of the tree with serde and says where it went wrong.
//!
//! serde's own messages name Rust's types and no place. Here an error carries its place and the words that were
//! possible, which is what a nearest word needs.

use std::fmt;
use std::ops::Range;

use serde::de::{self, Deserialize, DeserializeSeed, IntoDeserializer, Unexpected, Visitor, value::StrDeserializer};

use super::diagnostics::{one_of, quoted, unknown};
use super::tree::{Entry, Node, Value};

/// Decodes a value.
///
/// # Errors
/// Where it stands, and a message for people.
pub(super) fn decode<'de, T: Deserialize<'de>>(key: &str, node: &Node) -> Result<T, (Range<usize>, String)> {
    T::deserialize(De { node }).map_err(|error| {
        let span = error.span.clone().unwrap_or_else(|| node.span.clone());
        (span, error.message(key))
    })
}

/// The words that an enum knows: serde tells them to whoever asks for one that is not there, so that nothing needs a second
/// list.
pub(super) fn variants<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let nowhere = Node {
        span: 0..0,
        value: Value::Text(String::new()),
    };
    match T::deserialize(De { node: &nowhere }) {
        Err(error) => error.variants().unwrap_or_default(),
        Ok(_) => &[],
    }
}

/// Why a value could not be decoded.
#[derive(Debug)]
pub(super) struct DecodeError {
    span: Option<Range<usize>>,
    key: Option<String>,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    UnknownField {
        word: String,
        known: &'static [&'static str],
    },
    UnknownVariant {
        word: String,
        known: &'static [&'static str],
    },
    MissingField(&'static str),
    Unexpected {
        found: String,
        wanted: String,
    },
    Other(String),
}

impl DecodeError {
    fn of(cause: Cause) -> Self {
        Self {
            span: None,
            key: None,
            cause,
        }
    }

    /// Keeps the innermost place.
    fn at(mut self, span: &Range<usize>) -> Self {
        self.span.get_or_insert_with(|| span.clone());
        self
    }

    /// Keeps the innermost key.
    fn under(mut self, key: &str) -> Self {
        self.key.get_or_insert_with(|| key.to_owned());
        self
    }

    fn message(&self, outer_key: &str) -> String {
        let key = self.key.as_deref().unwrap_or(outer_key);
        match &self.cause {
            Cause::UnknownField { word, known } => unknown("key", word, known),
            Cause::UnknownVariant { word, known } => unknown(&format!("`{key}`"), word, known),
            Cause::MissingField(field) => format!("{} lacks `{field}`", quoted(key)),
            Cause::Unexpected { found, wanted } => format!("{} is {found} (wanted {wanted})", quoted(key)),
            Cause::Other(text) => text.clone(),
        }
    }

    /// The words that were possible, where the error is an unknown variant.
    fn variants(&self) -> Option<&'static [&'static str]> {
        match &self.cause {
            Cause::UnknownVariant { known, .. } => Some(known),
            _ => None,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message("value"))
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::of(Cause::Other(text.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        Self::of(Cause::Unexpected {
            found: shown(found),
            wanted: in_words(&wanted.to_string()),
        })
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        Self::invalid_type(found, wanted)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        let word = word.to_owned();
        Self::of(Cause::UnknownVariant { word, known })
    }

    fn unknown_field(word: &str, known: &'static [&'static str]) -> Self {
        let word = word.to_owned();
        Self::of(Cause::UnknownField { word, known })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of(Cause::MissingField(field))
    }
}

fn shown(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("the string {}", quoted(text)),
        Unexpected::Signed(number) => format!("`{number}`"),
        Unexpected::Unsigned(number) => format!("`{number}`"),
        Unexpected::Float(number) => format!("`{number}`"),
        Unexpected::Bool(yes) => format!("`{yes}`"),
        Unexpected::Seq => "an array".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        Unexpected::UnitVariant => "a bare word".to_owned(),
        other => other.to_string(),
    }
}

/// Says in words what serde wants.
fn in_words(wanted: &str) -> String {
    match wanted {
        "u16" | "u32" | "u64" => "a whole number from 0".to_owned(),
        "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a sequence" => "an array".to_owned(),
        "newtype variant" => "a table with a value".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        other if other.starts_with("variant identifier") => "a word".to_owned(),
        other => other.to_owned(),
    }
}

#[derive(Clone, Copy)]
pub(super) struct De<'a> {
    pub(super) node: &'a Node,
}

impl<'de> de::Deserializer<'de> for De<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let out_of_range = || {
            DecodeError::of(Cause::Unexpected {
                found: "a number beyond 64 bits".to_owned(),
                wanted: "a smaller one".to_owned(),
            })
        };
        match &self.node.value {
            Value::Text(text) => visitor.visit_str(text),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => Err(out_of_range()),
            },
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(yes) => visitor.visit_bool(*yes),
            Value::Datetime(text) => visitor.visit_str(text),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            Value::Table(entries) => visitor.visit_map(Entries {
                rest: entries.iter(),
                current: None,
            }),
        }
        .map_err(|error| error.at(&self.node.span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::Text(text) => visitor.visit_enum(<&str as IntoDeserializer<DecodeError>>::into_deserializer(text)),
            Value::Table(entries) if entries.len() == 1 => visitor.visit_enum(Variant(&entries[0])),
            other => Err(DecodeError::of(Cause::Unexpected {
                found: other.noun().to_owned(),
                wanted: format!("one of {}", one_of(known)),
            })),
        }
        .map_err(|error| error.at(&self.node.span))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a>(std::slice::Iter<'a, Node>);

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        self.0
            .next()
            .map(|node| seed.deserialize(De { node }).map_err(|error| error.at(&node.span)))
            .transpose()
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, Entry>,
    current: Option<&'a Entry>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        self.current = self.rest.next();
        self.current
            .map(|entry| {
                seed.deserialize(StrDeserializer::<DecodeError>::new(&entry.key))
                    .map_err(|error| error.at(&entry.key_span))
            })
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let entry = self
            .current
            .ok_or_else(|| DecodeError::of(Cause::Other("a value was asked for before its key".to_owned())))?;
        seed.deserialize(De { node: &entry.node })
            .map_err(|error| error.at(&entry.node.span).under(&entry.key))
    }
}

struct Variant<'a>(&'a Entry);

impl<'a, 'de> de::EnumAccess<'de> for Variant<'a> {
    type Error = DecodeError;
    type Variant = VariantValue<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, VariantValue<'a>), DecodeError> {
        let value = seed
            .deserialize(StrDeserializer::<DecodeError>::new(&self.0.key))
            .map_err(|error| error.at(&self.0.key_span))?;
        Ok((value, VariantValue(self.0)))
    }
}

struct VariantValue<'a>(&'a Entry);

impl<'de> de::VariantAccess<'de> for VariantValue<'_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Err(DecodeError::of(Cause::Other(format!(
            "{} stands alone (wanted \"{}\" without a table)",
            quoted(&self.0.key),
            self.0.key.escape_debug()
        )))
        .at(&self.0.key_span))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(De { node: &self.0.node })
            .map_err(|error| error.at(&self.0.node.span).under(&self.0.key))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        de::Deserializer::deserialize_any(De { node: &self.0.node }, visitor).map_err(|error| error.under(&self.0.key))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        de::Deserializer::deserialize_any(De { node: &self.0.node }, visitor).map_err(|error| error.under(&self.0.key))
    }
}
