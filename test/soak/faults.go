package soak

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// fault is one way in which a request fails.
type fault string

const (
	none fault = ""
	// reset ends the request's stream before the API server sees the request, lost after the API server has done it.
	reset fault = "reset"
	lost  fault = "lost"
	// severed ends the connection, and with it all that goes over it.
	severed fault = "severed"
	// internal, unavailable, throttled and conflict are answers, and the API server does not see the request. Only
	// requests that may meet one get a conflict.
	internal    fault = "500"
	unavailable fault = "503"
	throttled   fault = "429"
	conflict    fault = "409"
	// slow is an answer that comes late, truncated one of which the end is missing, by the end of its stream.
	slow      fault = "slow"
	truncated fault = "truncated"
)

// weather says how bad it is at one API server.
type weather struct {
	name string
	// faults is the part of requests that have one, of 1.
	faults float64
	// watches is how long a watch lasts in the mean; 0 leaves that to the API server.
	watches time.Duration
	// down: no connection is taken, and those that are there end.
	down bool
}

// The weathers, from the one that a soak ends with.
var (
	calm    = weather{name: "calm"}
	drizzle = weather{name: "drizzle", faults: 0.05, watches: 30 * time.Second}
	storm   = weather{name: "storm", faults: 0.4, watches: 3 * time.Second}
	cutOff  = weather{name: "cut off", down: true}
)

// forecast returns the next weather and how long it lasts.
func forecast(random *rand.Rand) (weather, time.Duration) {
	switch draw := random.Float64(); {
	case draw < 0.2:
		return calm, between(random, 5*time.Second, 20*time.Second)
	case draw < 0.7:
		return drizzle, between(random, 10*time.Second, 40*time.Second)
	case draw < 0.92:
		return storm, between(random, 5*time.Second, 20*time.Second)
	default:
		return cutOff, between(random, time.Second, 15*time.Second)
	}
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// draw returns the fault of a request.
func (w *weather) draw(random *rand.Rand, request *http.Request) fault {
	if random.Float64() >= w.faults {
		return none
	}
	if isWatch(request) {
		return []fault{reset, severed, internal, throttled, slow}[random.IntN(5)]
	}
	all := []fault{reset, reset, lost, lost, severed, internal, unavailable, throttled, slow, slow, truncated, conflict}
	drawn := all[random.IntN(len(all))]
	if drawn == conflict && request.Method != http.MethodPut && request.Method != http.MethodPatch {
		return internal
	}
	return drawn
}

func isWatch(request *http.Request) bool {
	return request.Method == http.MethodGet && request.URL.Query().Get("watch") != ""
}
