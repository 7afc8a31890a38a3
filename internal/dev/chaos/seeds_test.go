//go:build !race

package chaos_test

// fewSeeds are run by every go test.
const fewSeeds = 20
