//! Games for tests of the client for Rust: `odd_games kinds` has actions of all kinds, and the
//! other words are faults.

use std::cell::RefCell;
use std::env;
use std::future::pending;

use entity_env::{
    actions, entities, settings, Agent, Categorical, Game, Obs, Random, SelectEntity,
};

// ------------------------------------------------------------------ actions of all kinds

entities! {
    struct Car { x: f64 }
    struct Rock { size: f64 }
    struct Air { wind: f64 }
}

actions! {
    enum Flag { Low = "LOW", Mid = "MID", High = "HIGH" }
    enum Turn { Back = "BACK", On = "ON" }
    struct Steer { wheel: -1.0..=1.0, gas: 0.0..=2.0 }
}

type Pick = SelectEntity<Rock>;
type All = (Flag, Categorical<Turn>, Steer, Pick);

fn bit(random: &mut Random) -> bool {
    random.below(2) == 1
}

fn draw_mask(random: &mut Random, count: usize) -> Vec<bool> {
    let mut allowed: Vec<bool> = (0..count).map(|_| bit(random)).collect();
    allowed[random.below(count)] = true;
    allowed
}

fn draw_masks(random: &mut Random, num_actors: usize, count: usize) -> Vec<bool> {
    (0..num_actors).flat_map(|_| draw_mask(random, count)).collect()
}

fn look(random: &mut Random, score: f64) -> Obs {
    let air = Air { wind: random.uniform() };
    let num_cars = 1 + random.below(3);
    let cars: Vec<Car> = (0..num_cars).map(|_| Car { x: random.uniform() }).collect();
    let num_rocks = 1 + random.below(3);
    let rocks: Vec<Rock> = (0..num_rocks).map(|_| Rock { size: random.uniform() }).collect();
    let mut obs = Obs::new(score)
        .globals(air)
        .actors_of::<Steer, _>(&rocks) // before the cars, whose type is the first
        .actors_of::<(Categorical<Turn>, Pick), _>(&cars);
    if bit(random) {
        let visible: Vec<bool> = rocks.iter().map(|_| bit(random)).collect();
        obs = obs.visible::<Rock>(visible);
    }
    if bit(random) {
        obs = obs.metric("rocks", num_rocks as f64);
    }
    let masks = [0; 3].map(|_| bit(random));
    if masks[0] {
        obs = obs.mask::<Flag>(draw_mask(random, 3));
    }
    if masks[1] {
        obs = obs.mask::<Categorical<Turn>>(draw_masks(random, num_cars, 2));
    }
    if masks[2] {
        obs = obs.mask::<Pick>(draw_masks(random, num_cars, num_rocks));
    }
    obs
}

fn worth((flag, turns, pushes, picked): (Flag, Vec<Turn>, Vec<Steer>, Vec<usize>)) -> f64 {
    let mut found = flag as usize as f64;
    for (i, (turn, rock)) in turns.into_iter().zip(picked).enumerate() {
        found += ((i + 1) * (turn as usize + 1) + 8 * (i + 1) * rock) as f64;
    }
    for Steer { wheel, gas } in pushes {
        found += (16.0 * f64::from(wheel)).floor() / 16.0 + (16.0 * f64::from(gas)).floor() / 8.0;
    }
    found
}

async fn play_kinds(agents: [Agent; 2], seed: u64, _: ()) {
    let mut random = Random::new(seed);
    let mut scores = [0.0, 0.0];
    let left = [0, 1].map(|_| 1 + random.below(4));
    for turn in 0..=left[0].max(left[1]) {
        let mut pending = Vec::new();
        for i in 0..2 {
            if left[i] < turn {
                continue;
            }
            let obs = look(&mut random, scores[i]);
            if left[i] > turn {
                pending.push((i, agents[i].act::<All>(obs)));
            } else if bit(&mut random) {
                agents[i].truncate(obs);
            } else {
                agents[i].game_over(obs);
            }
        }
        for (i, answer) in pending {
            scores[i] += worth(answer.await);
        }
    }
}

// ------------------------------------------------------------------ faults

entities! {
    struct Dot { x: f32 }
    struct Unknown {}
}

actions! {
    enum Move { Left = "LEFT", Right = "RIGHT" }
    enum Other { One, Two }
}

type Moves = Categorical<Move>;

thread_local! {
    static KEPT: RefCell<Vec<Agent>> = const { RefCell::new(Vec::new()) };
}

fn is(word: &str) -> bool {
    env::args().nth(1).as_deref() == Some(word)
}

fn dot(score: f64) -> Obs {
    Obs::new(score).actors([Dot { x: 0.0 }])
}

/// Uses an agent when an episode is abandoned.
struct Guard<'a>(&'a [Agent; 2]);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if is("late") {
            self.0[1].game_over(dot(9.0));
            drop(self.0[0].act::<Moves>(dot(9.0)));
        }
        if is("bursts") {
            panic!("too late");
        }
    }
}

#[allow(clippy::let_underscore_future)]
async fn call_wrongly(agent: &Agent) {
    if is("entity") {
        agent.game_over(dot(0.0).entities([Unknown {}]));
    }
    if is("action") {
        agent.act::<Other>(dot(0.0)).await;
    }
    if is("twice") {
        let _first = agent.act::<Moves>(dot(0.0));
        agent.act::<Moves>(dot(0.0)).await;
    }
    if is("same") {
        agent.act::<(Moves, Moves)>(dot(0.0)).await;
    }
    if is("early") {
        let _first = agent.act::<Moves>(dot(0.0));
        agent.game_over(dot(0.0));
    }
    if is("end") {
        agent.game_over(dot(0.0));
        agent.game_over(dot(0.0));
    }
    if is("wait") {
        agent.game_over(dot(0.0));
        agent.act::<Moves>(dot(0.0)).await;
    }
    if is("mask_size") {
        agent.act::<Moves>(dot(0.0).mask::<Moves>([true])).await;
    }
    if is("mask_empty") {
        agent.act::<Moves>(dot(0.0).mask::<Moves>([false, false])).await;
    }
    if is("visible") {
        agent.act::<Moves>(dot(0.0).visible::<Dot>([true, false])).await;
    }
    if is("metric") {
        agent.act::<Moves>(dot(0.0).metric("speed", 1.0)).await;
    }
    if is("globals") {
        agent.act::<Moves>(dot(0.0).globals(Air { wind: 1.0 })).await;
    }
    if is("select") {
        agent.act::<Pick>(dot(0.0)).await;
    }
    if is("below") {
        Random::new(0).below(0);
    }
}

/// Each agent acts twice in turn, then the episode ends.
async fn play_faults(agents: [Agent; 2], _: u64, _: ()) {
    let _guard = Guard(&agents);
    if is("fails_at_once") {
        panic!("no wheels");
    }
    KEPT.with_borrow(|kept| {
        for agent in kept {
            let ends = || agent.game_over(dot(9.0)); // panics: its episode has ended
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(ends)).unwrap_err();
        }
    });
    for turn in 0..4 {
        let agent = &agents[turn % 2];
        if is("prints") {
            println!("Is this a message?");
        }
        if is("prints_errors") {
            eprintln!("Is this a message?");
        }
        if is("gives_up") {
            drop(agent.act::<Moves>(dot(100.0))); // of no consequence
        }
        agent.act::<Moves>(dot(turn as f64)).await;
        if turn == 2 {
            call_wrongly(agent).await;
        }
        if is("fails") && turn == 2 {
            agents[1].game_over(dot(4.0));
            panic!("a \"wheel\"\n\tcame off: {}", "é");
        }
        if is("panics_oddly") && turn == 2 {
            std::panic::panic_any(7);
        }
        if is("returns") && turn == 2 {
            return;
        }
        if is("awaits") && turn == 2 {
            pending::<()>().await;
        }
    }
    for agent in &agents {
        agent.game_over(dot(4.0));
    }
    if is("keeps") {
        drop(_guard);
        KEPT.with_borrow_mut(|kept| kept.extend(agents));
    }
}

settings! {
    struct Settings {
        size: u8 = 3,
        wind: f64 = 1.0,
        is_night: bool = false,
        level: String = String::from("easy \"peasy\""),
    }
}

/// Shows its settings as metrics.
async fn play_settings(agent: Agent, _: u64, settings: Settings) {
    for score in 0..3 {
        let obs = dot(f64::from(score))
            .metric("size", f64::from(settings.size))
            .metric("wind", settings.wind)
            .metric("is_night", f64::from(settings.is_night))
            .metric("level", settings.level.len() as f64);
        if score == 2 {
            return agent.game_over(obs);
        }
        agent.act::<Moves>(obs).await;
    }
}

fn main() {
    if is("kinds") {
        return Game::new("kinds", play_kinds)
            .version("2")
            .doc("Rules with \"quotes\" and é.")
            .globals::<Air>()
            .entity::<Car>()
            .entity::<Rock>()
            .action::<All>()
            .metric("rocks")
            .serve();
    }
    if is("settings") {
        return Game::new("settings", play_settings)
            .entity::<Dot>()
            .action::<Moves>()
            .metric("size")
            .metric("wind")
            .metric("is_night")
            .metric("level")
            .serve();
    }
    let mut game = Game::new("odd", play_faults).entity::<Dot>();
    if is("select") {
        game = game.entity::<Rock>();
    }
    if !is("no_action") {
        game = game.action::<Moves>();
    }
    if is("two_names") {
        game = game.action::<Move>();
    }
    if is("select") || is("no_type") {
        game = game.action::<Pick>();
    }
    game.serve();
}
