//go:build race

package kindtest

// slowness is how many times as long what is measured takes with the race detector.
const slowness = 5
