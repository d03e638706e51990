package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// outcome of a target, in words of the report.
type outcome string

const (
	passed   outcome = "ok"
	failed   outcome = "FAILED"
	timedOut outcome = "timed out"
	cutOff   outcome = "cut off"
	// cannotRun: this machine cannot run it.
	cannotRun outcome = "cannot run"
	notRun    outcome = "-"
)

// ranOnce is what is kept of one run of a target.
type ranOnce struct {
	Commit  string    `json:"commit"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Outcome outcome   `json:"outcome"`
	// Clean is whether the tree was that of the commit.
	Clean bool `json:"clean"`
	// Seed was drawn for the run; 0 for none.
	Seed int64 `json:"seed,omitempty"`
	// Cores that the machine has.
	Cores int `json:"cores"`
	// Tests that failed.
	Tests []string `json:"tests,omitempty"`
}

// history is what is kept of a target.
type history struct {
	Last ranOnce `json:"last"`
	// Green is the last run that passed on a clean tree; nil for none.
	Green *ranOnce `json:"green,omitempty"`
	// FailedSeeds are those of runs that failed and have not passed since, the newest first.
	FailedSeeds []int64 `json:"failedSeeds,omitempty"`
}

// maxFailedSeeds bounds FailedSeeds.
const maxFailedSeeds = 20

// store keeps a file for each target in a folder that all clones of the repository share. What is written at the same
// time by two processes is that of one of them.
type store struct{ folder string }

// get returns what is kept of a target; nothing is no error.
func (s store) get(name string) (history, error) {
	var kept history
	content, err := os.ReadFile(s.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return kept, nil
	case err != nil:
		return kept, fmt.Errorf("reading the results of %s: %w", name, err)
	}
	if err := json.Unmarshal(content, &kept); err != nil {
		return kept, fmt.Errorf("reading the results of %s: %w; delete %s", name, err, s.path(name))
	}
	return kept, nil
}

// put adds a run. It renames the file into place when that is complete.
func (s store) put(target *target, ran ranOnce) error {
	kept, err := s.get(target.name)
	if err != nil {
		return err
	}
	if ran.Outcome == cutOff && kept.Last.Outcome != "" {
		return nil // it says nothing, and what the last one said stays
	}
	kept.Last = ran
	if ran.Outcome == passed && ran.Clean {
		kept.Green = &ran
	}
	kept.FailedSeeds = slices.DeleteFunc(kept.FailedSeeds, func(seed int64) bool { return seed == ran.Seed })
	if ran.Outcome == failed && ran.Seed != 0 {
		kept.FailedSeeds = append([]int64{ran.Seed}, kept.FailedSeeds...)
		kept.FailedSeeds = slices.Clip(kept.FailedSeeds[:min(len(kept.FailedSeeds), maxFailedSeeds)])
	}
	content, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return fmt.Errorf("keeping the results of %s: %w", target.name, err)
	}
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return fmt.Errorf("keeping the results of %s: %w", target.name, err)
	}
	part, err := os.CreateTemp(s.folder, target.name+".*.part")
	if err != nil {
		return fmt.Errorf("keeping the results of %s: %w", target.name, err)
	}
	_, err = part.Write(append(content, '\n'))
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), s.path(target.name))
	}
	if err != nil {
		_ = os.Remove(part.Name())
		return fmt.Errorf("keeping the results of %s: %w", target.name, err)
	}
	return nil
}

func (s store) path(name string) string { return filepath.Join(s.folder, name+".json") }

// runOf returns what is kept of a result.
func runOf(r *result, commit string, clean bool) ranOnce {
	ran := ranOnce{
		Commit: commit, Clean: clean, Started: r.started.UTC().Truncate(time.Second), Seconds: r.took.Round(time.Second).Seconds(),
		Outcome: r.outcome, Seed: r.seed, Cores: runtime.NumCPU(),
	}
	for _, test := range r.tests.failures() {
		ran.Tests = append(ran.Tests, test.String())
	}
	return ran
}
