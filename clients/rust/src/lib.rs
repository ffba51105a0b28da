//! Games in Rust that entity_env plays, trains and records. README.md has an example.
//!
//! A program describes its game in a [`Game`] and calls [`Game::serve`]. The game is an async
//! function that plays one episode: it shows each [`Agent`] an observation ([`Obs`]) and awaits
//! its [`Action`]. The crate speaks version 1 of the protocol.

#![forbid(unsafe_code)]

mod action;
mod agent;
mod entity;
mod frame;
mod game;
mod json;
mod link;
mod obs;
mod random;
mod schema;
mod server;
mod settings;

#[doc(hidden)]
pub use action::{declare_part, ActionSpec, Answers, Kind, PartOf};
pub use action::{Action, Categorical, Choice, Part, PartId, SelectEntity};
pub use agent::{Act, Agent, Players};
pub use entity::{Feature, Featurizable};
pub use game::Game;
#[doc(hidden)]
pub use json::Json;
pub use obs::Obs;
pub use random::Random;
pub use settings::{Setting, Settings};
