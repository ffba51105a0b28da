use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::Range;

use crate::entity::Featurizable;

/// What an agent can be asked for: an enum or a struct that [`actions!`](crate::actions) or
/// [`composites!`](crate::composites) declares, [`Categorical`], [`SelectEntity`], or a tuple of
/// several.
pub trait Action: 'static {
    /// What [`Agent::act`](crate::Agent::act) returns.
    type Answer;

    #[doc(hidden)]
    fn declare(list: &mut Vec<ActionSpec>);
    #[doc(hidden)]
    fn each(visit: &mut dyn FnMut(TypeId));
    #[doc(hidden)]
    fn answer(answers: &mut Answers) -> Self::Answer;
}

/// An enum of labels that [`actions!`](crate::actions) declares.
pub trait Choice: Copy + 'static {
    const NAME: &'static str;
    const LABELS: &'static [&'static str];
    const ALL: &'static [Self];
}

/// An action with one label of an enum for each actor; the answer is a `Vec<C>`.
pub struct Categorical<C>(PhantomData<C>);

/// An action that selects an entity of a type for each actor. The answer is a `Vec<usize>`: indices
/// among the entities of this type in the observation. If the type is a relation, an actor can only
/// choose those that start at it, and an actor without one must be left out.
pub struct SelectEntity<E>(PhantomData<E>);

#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    GlobalCategorical,
    Categorical,
    SelectEntity,
    Continuous,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::GlobalCategorical => "global_categorical",
            Kind::Categorical => "categorical",
            Kind::SelectEntity => "select_entity",
            Kind::Continuous => "continuous",
        }
    }
}

#[doc(hidden)]
#[derive(Clone)]
pub struct ActionSpec {
    pub id: TypeId,
    pub name: String,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub bounds: &'static [(f32, f32)],
    pub selects: Option<&'static str>,
    /// Number of actions directly before it on whose choices it depends.
    pub num_given: usize,
}

/// A part of a decision: an action other than a tuple or another decision.
pub trait Part: Action {
    /// The choice of one actor, or that of a global part.
    type One;
    /// A list with a `T` for each actor, or one `T` if the part is global.
    type Of<T>;

    #[doc(hidden)]
    fn ones(answers: &mut Answers) -> std::vec::IntoIter<Self::One>;
    #[doc(hidden)]
    fn join<T>(ones: impl Iterator<Item = T>) -> Self::Of<T>;
}

/// Names a part of a decision for its mask, see [`Obs::mask_part`](crate::Obs::mask_part).
#[derive(Clone, Copy)]
pub struct PartId(#[doc(hidden)] pub TypeId);

/// The type whose id is that of a part.
#[doc(hidden)]
pub struct PartOf<D, const INDEX: usize>(PhantomData<D>);

/// Adds the action of a part.
#[doc(hidden)]
pub fn declare_part<P: Part>(
    list: &mut Vec<ActionSpec>,
    id: TypeId,
    decision: &str,
    part: &str,
    num_given: usize,
) {
    let first = list.len();
    P::declare(list);
    let name = format!("{decision}.{part}");
    let changed = |spec: ActionSpec| ActionSpec { id, name, num_given, ..spec };
    if let Some(spec) = list.pop().map(changed) {
        list.truncate(first);
        list.push(spec);
    }
}

macro_rules! parts_of_actors {
    ($([$($bound:tt)*] $part:ty, $one:ty;)*) => {
        $(impl<$($bound)*> Part for $part {
            type One = $one;
            type Of<T> = Vec<T>;

            fn ones(answers: &mut Answers) -> std::vec::IntoIter<$one> {
                Self::answer(answers).into_iter()
            }

            fn join<T>(ones: impl Iterator<Item = T>) -> Vec<T> {
                ones.collect()
            }
        })*
    };
}

parts_of_actors! {
    [C: Choice] Categorical<C>, C;
    [E: Featurizable + 'static] SelectEntity<E>, usize;
}

/// An action that an observation asks for.
pub(crate) struct Asked {
    pub action: usize,
    pub is_continuous: bool,
    pub num_actors: usize,
    /// Choices, or numbers, of each actor.
    pub width: usize,
    /// Rows of choices in the mask of each actor: one for each choice of the action before, or 1.
    pub num_rows: usize,
    /// Range of the actors in the observation.
    pub actors: Range<usize>,
    /// Range of the flags in the observation.
    pub mask: Option<Range<usize>>,
    /// Position of the first answer among those of the agent.
    pub first_answer: usize,
}

impl Asked {
    #[inline]
    pub fn num_answers(&self) -> usize {
        if self.is_continuous {
            self.num_actors * self.width
        } else {
            self.num_actors
        }
    }

    /// Size of the answers in a message.
    #[inline]
    pub fn num_bytes(&self) -> usize {
        self.num_answers() * if self.is_continuous { 4 } else { 8 }
    }
}

/// The answers of an agent.
#[doc(hidden)]
pub struct Answers<'a> {
    pub(crate) asked: &'a [Asked],
    pub(crate) choices: &'a [i64],
    pub(crate) numbers: &'a [f32],
    /// Position of the next action among those that were asked.
    pub(crate) next: usize,
}

impl<'a> Answers<'a> {
    /// The answers of all actors to the next action.
    #[inline]
    pub fn choices(&mut self) -> impl Iterator<Item = usize> + 'a {
        let asked = &self.asked[self.next];
        self.next += 1;
        let choices = &self.choices[asked.first_answer..][..asked.num_actors];
        choices.iter().map(|&choice| choice as usize)
    }

    /// The numbers of each actor for the next action.
    #[inline]
    pub fn numbers(&mut self) -> std::slice::ChunksExact<'a, f32> {
        let asked = &self.asked[self.next];
        self.next += 1;
        let numbers = &self.numbers[asked.first_answer..][..asked.num_actors * asked.width];
        numbers.chunks_exact(asked.width)
    }

    /// The only answer to the next action.
    #[inline]
    pub fn choice(&mut self) -> usize {
        let asked = &self.asked[self.next];
        self.next += 1;
        self.choices[asked.first_answer] as usize
    }
}

impl<C: Choice> Action for Categorical<C> {
    type Answer = Vec<C>;

    fn declare(list: &mut Vec<ActionSpec>) {
        list.push(ActionSpec {
            id: TypeId::of::<Self>(),
            name: C::NAME.to_string(),
            kind: Kind::Categorical,
            labels: C::LABELS,
            bounds: &[],
            selects: None,
            num_given: 0,
        });
    }

    fn each(visit: &mut dyn FnMut(TypeId)) {
        visit(TypeId::of::<Self>());
    }

    fn answer(answers: &mut Answers) -> Vec<C> {
        answers.choices().map(|choice| C::ALL[choice]).collect()
    }
}

impl<E: Featurizable + 'static> Action for SelectEntity<E> {
    type Answer = Vec<usize>;

    fn declare(list: &mut Vec<ActionSpec>) {
        list.push(ActionSpec {
            id: TypeId::of::<Self>(),
            name: format!("Select{}", E::NAME),
            kind: Kind::SelectEntity,
            labels: &[],
            bounds: &[],
            selects: Some(E::NAME),
            num_given: 0,
        });
    }

    fn each(visit: &mut dyn FnMut(TypeId)) {
        visit(TypeId::of::<Self>());
    }

    fn answer(answers: &mut Answers) -> Vec<usize> {
        answers.choices().collect()
    }
}

macro_rules! tuples {
    ($(($($action:ident)*))*) => {
        $(impl<$($action: Action),*> Action for ($($action,)*) {
            type Answer = ($($action::Answer,)*);

            fn declare(list: &mut Vec<ActionSpec>) {
                $($action::declare(list);)*
            }

            fn each(visit: &mut dyn FnMut(TypeId)) {
                $($action::each(visit);)*
            }

            fn answer(answers: &mut Answers) -> Self::Answer {
                ($($action::answer(answers),)*)
            }
        })*
    };
}

tuples!((A B) (A B C) (A B C D) (A B C D E) (A B C D E F));

/// Declares actions.
///
/// An enum is one label for the whole observation; use it in [`Categorical`] for one label per
/// actor. A struct is continuous: one number within bounds for each field and actor.
///
/// ```
/// entity_env::actions! {
///     enum Move { Up = "UP", Down = "DOWN" }
///     enum Square { A1, B1, C1 } // with these names as labels
///     struct Steer { wheel: -1.0..=1.0, gas: 0.0..=2.0 }
/// }
/// ```
#[macro_export]
macro_rules! actions {
    () => {};
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($variant:ident $(= $label:literal)?),+ $(,)?
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($variant),+ }

        impl $crate::Choice for $name {
            const NAME: &'static str = stringify!($name);
            const LABELS: &'static [&'static str] =
                &[$($crate::actions!(@label $variant $($label)?)),+];
            const ALL: &'static [$name] = &[$($name::$variant),+];
        }

        impl $crate::Action for $name {
            type Answer = $name;

            fn declare(list: &mut Vec<$crate::ActionSpec>) {
                list.push($crate::ActionSpec {
                    id: std::any::TypeId::of::<$name>(),
                    name: stringify!($name).to_string(),
                    kind: $crate::Kind::GlobalCategorical,
                    labels: <$name as $crate::Choice>::LABELS,
                    bounds: &[],
                    selects: None,
                    num_given: 0,
                });
            }

            fn each(visit: &mut dyn FnMut(std::any::TypeId)) {
                visit(std::any::TypeId::of::<$name>());
            }

            fn answer(answers: &mut $crate::Answers) -> $name {
                <$name as $crate::Choice>::ALL[answers.choice()]
            }
        }

        impl $crate::Part for $name {
            type One = $name;
            type Of<T> = T;

            fn ones(answers: &mut $crate::Answers) -> std::vec::IntoIter<$name> {
                vec![<$name as $crate::Action>::answer(answers)].into_iter()
            }

            fn join<T>(mut ones: impl Iterator<Item = T>) -> T {
                ones.next().expect("a global part has one answer")
            }
        }

        $crate::actions! { $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($field:ident : $low:literal ..= $high:literal),+ $(,)?
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $vis struct $name { $($vis $field: f32),+ }

        impl $crate::Action for $name {
            type Answer = Vec<$name>;

            fn declare(list: &mut Vec<$crate::ActionSpec>) {
                list.push($crate::ActionSpec {
                    id: std::any::TypeId::of::<$name>(),
                    name: stringify!($name).to_string(),
                    kind: $crate::Kind::Continuous,
                    labels: &[$(stringify!($field)),+],
                    bounds: &[$(($low, $high)),+],
                    selects: None,
                    num_given: 0,
                });
            }

            fn each(visit: &mut dyn FnMut(std::any::TypeId)) {
                visit(std::any::TypeId::of::<$name>());
            }

            fn answer(answers: &mut $crate::Answers) -> Vec<$name> {
                let numbers = answers.numbers();
                numbers
                    .map(|numbers| {
                        let mut numbers = numbers.iter().copied();
                        $name { $($field: numbers.next().unwrap_or_default()),+ }
                    })
                    .collect()
            }
        }

        impl $crate::Part for $name {
            type One = $name;
            type Of<T> = Vec<T>;

            fn ones(answers: &mut $crate::Answers) -> std::vec::IntoIter<$name> {
                <$name as $crate::Action>::answer(answers).into_iter()
            }

            fn join<T>(ones: impl Iterator<Item = T>) -> Vec<T> {
                ones.collect()
            }
        }

        $crate::actions! { $($rest)* }
    };
    (@label $variant:ident) => { stringify!($variant) };
    (@label $variant:ident $label:literal) => { $label };
}

/// Declares decisions in several parts, which are chosen in this order, each knowing those before.
///
/// The answer to `act::<Send>` is a `Vec<Send>` with a decision for each actor. If the parts are
/// enums of [`actions!`](crate::actions), and so global, it is one decision; all parts are global,
/// or none is. A function with the name of a field names a part for its mask: `Send::trucks()`.
///
/// ```
/// # use entity_env::{actions, composites, entities, Categorical, SelectEntity};
/// # entities! { struct Town { need: f64 } }
/// # actions! { enum Trucks { One, Two, Three } }
/// composites! {
///     struct Send { town: SelectEntity<Town>, trucks: Categorical<Trucks> }
/// }
/// ```
#[macro_export]
macro_rules! composites {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident {
        $first:ident : $one:ty $(, $field:ident : $part:ty)* $(,)?
    })*) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $vis struct $name {
            $vis $first: <$one as $crate::Part>::One,
            $($vis $field: <$part as $crate::Part>::One,)*
        }

        #[allow(dead_code)]
        impl $name {
            $crate::composites!(@ids $vis $name, 0, $first $($field)*);
        }

        impl $crate::Action for $name {
            type Answer = <$one as $crate::Part>::Of<$name>;

            fn declare(list: &mut Vec<$crate::ActionSpec>) {
                let ids = [Self::$first(), $(Self::$field()),*];
                let mut ids = ids.iter().map(|part| part.0).enumerate();
                let mut next = || ids.next().expect("one for each part");
                let (given, id) = next();
                let decision = stringify!($name);
                $crate::declare_part::<$one>(list, id, decision, stringify!($first), given);
                $(
                    let (given, id) = next();
                    $crate::declare_part::<$part>(list, id, decision, stringify!($field), given);
                )*
            }

            fn each(visit: &mut dyn FnMut(std::any::TypeId)) {
                visit(Self::$first().0);
                $(visit(Self::$field().0);)*
            }

            fn answer(answers: &mut $crate::Answers) -> Self::Answer {
                let mut $first = <$one as $crate::Part>::ones(answers);
                $(let mut $field = <$part as $crate::Part>::ones(answers);)*
                <$one as $crate::Part>::join(std::iter::from_fn(|| {
                    Some($name { $first: $first.next()?, $($field: $field.next()?,)* })
                }))
            }
        })*
    };
    (@ids $vis:vis $name:ident, $index:expr, $field:ident $($rest:ident)*) => {
        $vis fn $field() -> $crate::PartId {
            $crate::PartId(std::any::TypeId::of::<$crate::PartOf<$name, { $index }>>())
        }
        $crate::composites!(@ids $vis $name, $index + 1, $($rest)*);
    };
    (@ids $vis:vis $name:ident, $index:expr, ) => {};
}
