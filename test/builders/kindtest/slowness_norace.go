//go:build !race

package kindtest

// slowness is how many times as long what is measured takes without the race detector.
const slowness = 1
