use crate::json::{quoted, Json};

/// Settings of a game, which [`settings!`](crate::settings) declares; `()` if there are none.
pub trait Settings: Clone + Default + 'static {
    #[doc(hidden)]
    fn describe(&self) -> Vec<(&'static str, String)>;
    #[doc(hidden)]
    fn update(&mut self, given: &Json) -> Result<(), String>;
}

impl Settings for () {
    fn describe(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn update(&mut self, _: &Json) -> Result<(), String> {
        Ok(())
    }
}

/// A type that a setting can have: `bool`, an integer, `f32`, `f64` or `String`.
pub trait Setting: Sized {
    #[doc(hidden)]
    fn to_json(&self) -> String;
    #[doc(hidden)]
    fn from_json(json: &Json) -> Result<Self, String>;
}

impl Setting for bool {
    fn to_json(&self) -> String {
        self.to_string()
    }

    fn from_json(json: &Json) -> Result<bool, String> {
        match json {
            Json::Bool(value) => Ok(*value),
            _ => Err("true or false".to_string()),
        }
    }
}

impl Setting for String {
    fn to_json(&self) -> String {
        quoted(self)
    }

    fn from_json(json: &Json) -> Result<String, String> {
        match json {
            Json::Text(text) => Ok(text.clone()),
            _ => Err("a text".to_string()),
        }
    }
}

macro_rules! numbers {
    ($($number:ty : $what:expr),*) => {
        $(impl Setting for $number {
            fn to_json(&self) -> String {
                format!("{self:?}") // an integer, or a number with a point or an exponent
            }

            fn from_json(json: &Json) -> Result<$number, String> {
                let Json::Number(text) = json else {
                    return Err($what);
                };
                text.parse().map_err(|_| $what)
            }
        })*
    };
}

macro_rules! integers {
    ($($number:ty)*) => {
        numbers! {
            $($number: format!("an integer from {} to {}", <$number>::MIN, <$number>::MAX)),*
        }
    };
}

integers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);
numbers!(f32: "a number".to_string(), f64: "a number".to_string());

/// Declares a struct of settings with their defaults.
///
/// ```
/// entity_env::settings! {
///     struct Settings {
///         board_size: usize = 10,
///         wind: f64 = 0.5,
///         is_night: bool = false,
///         level: String = String::from("easy"),
///     }
/// }
/// ```
#[macro_export]
macro_rules! settings {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($field_vis:vis $field:ident : $kind:ty = $default:expr),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $($field_vis $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default),* }
            }
        }

        impl $crate::Settings for $name {
            fn describe(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), $crate::Setting::to_json(&self.$field))),*]
            }

            fn update(&mut self, given: &$crate::Json) -> Result<(), String> {
                $(if let Some(json) = given.get(stringify!($field)) {
                    self.$field = $crate::Setting::from_json(json).map_err(|expected| {
                        format!("the setting {} must be {expected}", stringify!($field))
                    })?;
                })*
                Ok(())
            }
        }
    };
}
