//! Games for tests of the client for Rust: `odd_games kinds` has actions of all kinds, and the
//! other words are faults.

use std::cell::RefCell;
use std::env;
use std::future::pending;

use entity_env::{
    actions, composites, entities, relations, settings, Agent, Categorical, Game, Obs, Random,
    SelectEntity,
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

// ------------------------------------------------------------------ decisions in several parts

actions! {
    enum IsFast { No = "False", Yes = "True" }
    struct Weight { weight: 0.0..=2.0 }
}

composites! {
    struct Signal { turn: Turn, flag: Flag }
    struct Haul {
        rock: SelectEntity<Rock>,
        load: Categorical<Flag>,
        is_fast: Categorical<IsFast>,
        weight: Weight,
    }
    struct Mixed { turn: Turn, rock: SelectEntity<Rock> }
}

fn draw_cars_and_rocks(random: &mut Random) -> (Vec<Car>, Vec<Rock>) {
    let num_cars = 1 + random.below(3);
    let cars = (0..num_cars).map(|_| Car { x: random.uniform() }).collect();
    let num_rocks = 1 + random.below(3);
    let rocks = (0..num_rocks).map(|_| Rock { size: random.uniform() }).collect();
    (cars, rocks)
}

async fn play_parts(agent: Agent, seed: u64, _: ()) {
    let mut random = Random::new(seed);
    let mut score = 0.0;
    for _ in 0..4 {
        let (cars, rocks) = draw_cars_and_rocks(&mut random);
        let count = rocks.len();
        let mut near = vec![vec![true; count]; cars.len()];
        let is_near = bit(&mut random);
        if is_near {
            near[0] = draw_mask(&mut random, count);
            for own in &mut near[1..] {
                own.fill_with(|| bit(&mut random));
            }
        }
        let mut loads: Vec<Vec<bool>> =
            cars.iter().map(|_| draw_masks(&mut random, count, 3)).collect();
        let mut obs = Obs::new(score);
        let mut asked = Vec::new();
        for (i, car) in cars.iter().enumerate() {
            obs = if near[i].contains(&true) {
                asked.push(i);
                obs.actors_of::<Haul, _>([car])
            } else {
                obs.entities([car])
            };
        }
        obs = obs.entities(&rocks);
        if is_near {
            let own = asked.iter().flat_map(|&i| near[i].clone());
            obs = obs.mask_part(Haul::rock(), own);
        }
        let own = asked.iter().flat_map(|&i| std::mem::take(&mut loads[i]));
        obs = obs.mask_given(Haul::load(), Haul::rock(), own);
        if bit(&mut random) {
            let flags = draw_masks(&mut random, 2, 3);
            obs = obs.mask_given(Signal::flag(), Signal::turn(), flags);
        }
        let (signal, hauls) = agent.act::<(Signal, Haul)>(obs).await;
        score += (3 * (signal.turn as usize) + signal.flag as usize) as f64;
        for (i, haul) in asked.into_iter().zip(hauls) {
            let number = 8 * haul.rock + 100 * haul.load as usize + 1000 * haul.is_fast as usize;
            let weight = (16.0 * f64::from(haul.weight.weight)).floor() / 16.0;
            score += ((i + 1) * number) as f64 + weight;
        }
    }
    agent.game_over(Obs::new(score).entities([Rock { size: 0.5 }]));
}

// ------------------------------------------------------------------ relations

relations! {
    struct Gap { one -> Rock, other -> Rock }
    #[derive(Clone)]
    struct Road { start -> Car, end -> Rock, hours: f64 }
    struct Loop { start -> Car, end -> Road }
}

composites! {
    struct Trip { flag: Categorical<Flag>, road: SelectEntity<Road>, speed: Categorical<Flag> }
}

fn draw_open(random: &mut Random, count: usize) -> Vec<bool> {
    (0..count).map(|i| random.below(4) > 0 || i == 0).collect()
}

/// An observation, and the cars that can choose: for a road alone, and for a decision.
fn look_at_roads(random: &mut Random, score: f64) -> (Obs, [Vec<usize>; 2]) {
    let (cars, rocks) = draw_cars_and_rocks(random);
    let mut roads = vec![Road { start: 0, end: 0, hours: random.uniform() }];
    for end in 0..rocks.len() {
        for start in 0..cars.len() {
            for _ in 0..random.below(3) {
                roads.push(Road { start, end, hours: random.uniform() });
            }
        }
    }
    let pairs = (0..rocks.len() * rocks.len()).filter(|_| bit(random));
    let gaps = pairs.map(|i| Gap { one: i / rocks.len(), other: i % rocks.len() });
    let mut obs = Obs::new(score).entities(gaps.collect::<Vec<_>>()).entities(&roads);
    let count = roads.len();
    let mut open = vec![vec![true; count]; cars.len()];
    if bit(random) {
        open.fill_with(|| draw_open(random, count));
    } else if bit(random) {
        open.fill(draw_open(random, count));
    }
    let has_legal = bit(random);
    let num_legal = if has_legal { cars.len() * 3 } else { 0 };
    let legal: Vec<Vec<bool>> = (0..num_legal).map(|_| draw_open(random, count)).collect();
    let has_speed = bit(random);
    let num_speed = if has_speed { cars.len() } else { 0 };
    let speed: Vec<Vec<bool>> = (0..num_speed).map(|_| draw_masks(random, count, 3)).collect();
    obs = obs.visible::<Road>(draw_open(random, count));
    let mut asked = [Vec::new(), Vec::new()];
    for (c, car) in cars.iter().enumerate() {
        let mut own = roads.iter().zip(&open[c]).filter(|(road, _)| road.start == c).peekable();
        let can_trip = own.peek().is_some();
        let can_go = own.any(|(_, &is_open)| is_open);
        for (list, can) in asked.iter_mut().zip([can_go, can_trip]) {
            list.extend(can.then_some(c));
        }
        obs = match (can_go, can_trip) {
            (true, true) => obs.actors_of::<(SelectEntity<Road>, Trip), _>([car]),
            (false, true) => obs.actors_of::<Trip, _>([car]),
            _ => obs.entities([car]),
        };
    }
    obs = obs.entities(&rocks);
    obs = obs.mask::<SelectEntity<Road>>(asked[0].iter().flat_map(|&c| open[c].clone()));
    if has_legal {
        let flags = asked[1].iter().flat_map(|&c| {
            let rows = legal[3 * c..3 * c + 3].iter();
            rows.flat_map(|row| row.iter().zip(&roads).map(|(&flag, road)| flag || road.start == c))
                .collect::<Vec<bool>>()
        });
        obs = obs.mask_given(Trip::road(), Trip::flag(), flags);
    }
    if has_speed {
        let flags = asked[1].iter().flat_map(|&c| speed[c].clone());
        obs = obs.mask_given(Trip::speed(), Trip::road(), flags);
    }
    (obs, asked)
}

async fn play_roads(agent: Agent, seed: u64, _: ()) {
    let mut random = Random::new(seed);
    let mut score = 0.0;
    for _ in 0..4 {
        let (obs, [cars, travelers]) = look_at_roads(&mut random, score);
        let (chosen, trips) = agent.act::<(SelectEntity<Road>, Trip)>(obs).await;
        for (c, road) in cars.into_iter().zip(chosen) {
            score += ((c + 1) * (1 + road)) as f64;
        }
        for (c, trip) in travelers.into_iter().zip(trips) {
            let number = 40 * trip.flag as usize + 200 * trip.speed as usize;
            score += ((c + 1) * (number + 1000 * trip.road)) as f64;
        }
    }
    let (obs, _) = look_at_roads(&mut random, score);
    if bit(&mut random) {
        agent.truncate(obs);
    } else {
        agent.game_over(obs);
    }
}

/// Shows roads of two cars, with a fault.
async fn play_wrong_roads(agent: Agent, _: u64, _: ()) {
    let road = Road { start: 0, end: 0, hours: 1.0 };
    let cars = [Car { x: 0.0 }, Car { x: 1.0 }];
    let mut obs = Obs::new(0.0).entities([Rock { size: 1.0 }]);
    let mut roads = vec![road.clone(), Road { start: 1, ..road }];
    if is("road_start") {
        roads[1].start = 2;
    }
    if is("road_alone") {
        roads.pop();
    }
    obs = if is("road_acts") { obs.actors(roads) } else { obs.entities(roads) };
    if is("road_of_rock") {
        obs = obs.actors([Rock { size: 2.0 }]);
    }
    obs = obs.actors(cars);
    if is("road_given") {
        obs = obs.mask_given(Trip::speed(), Trip::flag(), [true; 12]);
    }
    if is("road_flags") {
        obs = obs.mask_given(Trip::speed(), Trip::road(), [true; 6]);
    }
    agent.act::<(SelectEntity<Road>, Trip)>(obs).await;
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
    if is("parts") || is("mixed") {
        let game = Game::new("parts", play_parts).entity::<Car>().entity::<Rock>();
        if is("mixed") {
            return game.action::<Mixed>().serve();
        }
        return game.action::<(Signal, Haul)>().serve();
    }
    if env::args().nth(1).is_some_and(|word| word.starts_with("road")) {
        let mut game = Game::new("roads", play_roads);
        if !is("roads") {
            game = Game::new("roads", play_wrong_roads);
        }
        if is("road_to_road") {
            game = game.entity::<Loop>();
        }
        // Relations come last in the spaces.
        game = game.entity::<Gap>().entity::<Road>().entity::<Car>();
        if !is("road_type") {
            game = game.entity::<Rock>();
        }
        return game.action::<(SelectEntity<Road>, Trip)>().serve();
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
