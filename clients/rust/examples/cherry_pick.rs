//! Cherry pick: one actor selects an entity in every step. The rules are those of
//! entity_env.games.cherry_pick.

use entity_env::{entities, settings, Agent, Game, Obs, Random, SelectEntity};

entities! {
    struct Picker {}
    struct Cherry { quality: f64 }
}

settings! {
    struct Settings { num_good: u32 = 8, num_bad: u32 = 8 }
}

/// Cherries with qualities that add up to `total`.
fn grow(random: &mut Random, count: u32, total: f64) -> Vec<Cherry> {
    let weights: Vec<f64> = (0..count).map(|_| 0.1 + (1.0 - 0.1) * random.uniform()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| Cherry { quality: total * weight / sum }).collect()
}

async fn play(agent: Agent, seed: u64, settings: Settings) {
    let mut random = Random::new(seed);
    let mut cherries = grow(&mut random, settings.num_good, 1.0);
    cherries.extend(grow(&mut random, settings.num_bad, -1.0));
    random.shuffle(&mut cherries);
    let mut score = 0.0;
    for _ in 0..settings.num_good {
        let obs = Obs::new(score).actors([Picker {}]).entities(&cherries);
        let picked = agent.act::<SelectEntity<Cherry>>(obs).await;
        score += cherries.remove(picked[0]).quality;
    }
    agent.game_over(Obs::new(score).actors([Picker {}]).entities(&cherries));
}

fn main() {
    Game::new("cherry_pick", play)
        .entity::<Picker>()
        .entity::<Cherry>()
        .action::<SelectEntity<Cherry>>()
        .check(|settings: &Settings| {
            let sizes = 1..=10_000;
            if sizes.contains(&settings.num_good) && sizes.contains(&settings.num_bad) {
                return Ok(());
            }
            Err("cherry_pick: num_good and num_bad must be at least 1, at most 10000".to_string())
        })
        .serve();
}
