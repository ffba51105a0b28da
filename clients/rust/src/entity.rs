/// A struct that agents observe as an entity. [`entities!`](crate::entities) implements it.
pub trait Featurizable {
    const NAME: &'static str;
    const FEATURES: &'static [&'static str];
    /// Of a relation, the names of the types of both entities.
    const REFERENCES: Option<[&'static str; 2]> = None;

    /// Appends one number for each feature.
    fn featurize(&self, features: &mut Vec<f32>);
}

impl<E: Featurizable> Featurizable for &E {
    const NAME: &'static str = E::NAME;
    const FEATURES: &'static [&'static str] = E::FEATURES;
    const REFERENCES: Option<[&'static str; 2]> = E::REFERENCES;

    fn featurize(&self, features: &mut Vec<f32>) {
        E::featurize(self, features)
    }
}

/// A number or flag that can be a field of an entity.
pub trait Feature: Copy {
    fn feature(self) -> f32;
}

impl Feature for bool {
    fn feature(self) -> f32 {
        f32::from(u8::from(self))
    }
}

macro_rules! features {
    ($($number:ty)*) => {
        $(impl Feature for $number {
            fn feature(self) -> f32 {
                self as f32
            }
        })*
    };
}

features!(f32 f64 i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

/// Declares structs that are entities; all their fields are features.
///
/// ```
/// entity_env::entities! {
///     #[derive(Clone, Copy)]
///     struct Head { x: i32, y: i32 }
///     struct Food { x: i32, y: i32, is_ripe: bool }
/// }
/// ```
#[macro_export]
macro_rules! entities {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($field_vis:vis $field:ident : $number:ty),* $(,)?
    })*) => {
        $($(#[$meta])*
        $vis struct $name {
            $($field_vis $field: $number,)*
        }

        impl $crate::Featurizable for $name {
            const NAME: &'static str = stringify!($name);
            const FEATURES: &'static [&'static str] = &[$(stringify!($field)),*];

            #[allow(unused_variables)]
            fn featurize(&self, features: &mut Vec<f32>) {
                $(features.push($crate::Feature::feature(self.$field));)*
            }
        })*
    };
}

/// Declares structs that are relations: facts about pairs of entities of one observation.
///
/// The first two fields are the entities: their indices among those of their type. Relations are
/// added to a game with [`Game::entity`](crate::Game::entity), and to observations with
/// [`Obs::entities`](crate::Obs::entities), before or after their entities.
///
/// ```
/// # entity_env::entities! { struct Town { letters: u32 } }
/// entity_env::relations! {
///     struct Road { start -> Town, end -> Town, hours: f64 }
/// }
/// let road = Road { start: 0, end: 2, hours: 1.5 };
/// ```
#[macro_export]
macro_rules! relations {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident {
        $first:ident -> $one:ty, $second:ident -> $other:ty
        $(, $field_vis:vis $field:ident : $number:ty)* $(,)?
    })*) => {
        $($(#[$meta])*
        $vis struct $name {
            $vis $first: usize,
            $vis $second: usize,
            $($field_vis $field: $number,)*
        }

        impl $crate::Featurizable for $name {
            const NAME: &'static str = stringify!($name);
            const FEATURES: &'static [&'static str] =
                &[stringify!($first), stringify!($second), $(stringify!($field)),*];
            const REFERENCES: Option<[&'static str; 2]> =
                Some([<$one as $crate::Featurizable>::NAME, <$other as $crate::Featurizable>::NAME]);

            fn featurize(&self, features: &mut Vec<f32>) {
                features.push($crate::Feature::feature(self.$first));
                features.push($crate::Feature::feature(self.$second));
                $(features.push($crate::Feature::feature(self.$field));)*
            }
        })*
    };
}
