//go:build race

package chaos_test

// fewSeeds are fewer with the race detector, which makes a run cost many times as much.
const fewSeeds = 5
