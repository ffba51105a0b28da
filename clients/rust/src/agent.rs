use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::action::{Action, Answers, Asked};
use crate::obs::Obs;
use crate::schema::Schema;

/// One agent during one episode.
pub(crate) struct Seat {
    schema: Rc<Schema>,
    pub state: RefCell<SeatState>,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// The agent waits for answers.
    Waits,
    /// The answers have arrived, but the game has not taken them.
    Answered,
}

#[derive(Default)]
pub(crate) struct SeatState {
    pub phase: Phase,
    /// The observation of an agent that waits, until it has been sent. Then its memory serves the
    /// next copy, and only what follows is kept.
    pub obs: Option<Obs>,
    /// What was asked last.
    pub asked: Vec<Asked>,
    /// Flags of masks.
    pub flags: Vec<u8>,
    pub choices: Vec<i64>,
    pub numbers: Vec<f32>,
    /// Has been asked, and has not ended its episode.
    pub is_playing: bool,
    pub has_ended: bool,
    /// The last observation, and whether the episode was truncated.
    pub end: Option<(Obs, bool)>,
}

impl SeatState {
    /// Prepares for the next episode.
    pub fn clear(&mut self) {
        self.phase = Phase::Idle;
        self.obs = None;
        self.asked.clear();
        self.is_playing = false;
        self.has_ended = false;
        self.end = None;
    }
}

impl Seat {
    pub fn new(schema: Rc<Schema>) -> Rc<Seat> {
        Rc::new(Seat { schema, state: RefCell::default() })
    }
}

/// An agent of one episode.
pub struct Agent {
    pub(crate) seat: Rc<Seat>,
}

impl Agent {
    /// Asks for an action, or for several as in `act::<(A, B)>`. The agent waits from this call
    /// on: to ask several agents at once, call `act` for each, and then await the answers.
    ///
    /// Answers of actors are in the order of their entities: type by type as in the game, and in
    /// each type as in the observation. If the host abandons the episode, `play` is dropped here.
    #[track_caller]
    pub fn act<A: Action>(&self, mut obs: Obs) -> Act<'_, A> {
        let schema = &self.seat.schema;
        let state = &mut *self.seat.state.borrow_mut();
        assert!(!state.has_ended, "Agent::act: the agent has ended its episode");
        assert!(state.phase == Phase::Idle, "Agent::act: await the last answer first");
        obs.ask::<A>(schema);
        obs.complete(schema);
        state.obs = Some(obs);
        state.phase = Phase::Waits;
        state.is_playing = true;
        Act { seat: Some(&self.seat), action: PhantomData }
    }

    /// Ends the agent's episode, by the rules of the game.
    #[track_caller]
    pub fn game_over(&self, obs: Obs) {
        self.end(obs, false);
    }

    /// Ends the agent's episode because of a limit, such as a number of steps. The observation
    /// counts as one that asks for the same actions as the last one.
    #[track_caller]
    pub fn truncate(&self, obs: Obs) {
        self.end(obs, true);
    }

    #[track_caller]
    fn end(&self, mut obs: Obs, is_truncated: bool) {
        let state = &mut *self.seat.state.borrow_mut();
        assert!(!state.has_ended, "Agent::game_over: the agent has ended its episode already");
        assert!(state.phase == Phase::Idle, "Agent::game_over: await the last answer first");
        if is_truncated {
            obs.ask_again(&state.asked);
        }
        obs.complete(&self.seat.schema);
        state.end = Some((obs, is_truncated));
        state.has_ended = true;
        state.is_playing = false;
    }
}

/// The answer that [`Agent::act`] waits for.
#[must_use = "an answer that is not awaited is lost"]
pub struct Act<'a, A> {
    seat: Option<&'a Seat>,
    action: PhantomData<fn() -> A>,
}

impl<A: Action> Future for Act<'_, A> {
    type Output = A::Answer;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<A::Answer> {
        let seat = self.seat.expect("a future is not polled after it was ready");
        let state = &mut *seat.state.borrow_mut();
        if state.phase != Phase::Answered {
            return Poll::Pending;
        }
        let answer = A::answer(&mut Answers {
            asked: &state.asked,
            choices: &state.choices,
            numbers: &state.numbers,
            next: 0,
        });
        state.phase = Phase::Idle;
        self.seat = None;
        Poll::Ready(answer)
    }
}

/// Gives up the answer. After the observation has been sent, it still arrives.
impl<A> Drop for Act<'_, A> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            let state = &mut *seat.state.borrow_mut();
            if state.obs.take().is_some() || state.phase == Phase::Answered {
                state.phase = Phase::Idle;
            }
        }
    }
}

/// The first argument of `play`: an [`Agent`], or an array of several.
pub trait Players: 'static {
    const COUNT: usize;

    #[doc(hidden)]
    fn gather(next: &mut dyn FnMut() -> Agent) -> Self;
}

impl Players for Agent {
    const COUNT: usize = 1;

    fn gather(next: &mut dyn FnMut() -> Agent) -> Agent {
        next()
    }
}

impl<const N: usize> Players for [Agent; N] {
    const COUNT: usize = N;

    fn gather(next: &mut dyn FnMut() -> Agent) -> [Agent; N] {
        std::array::from_fn(|_| next())
    }
}
