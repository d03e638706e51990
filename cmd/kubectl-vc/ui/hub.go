package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// period is how long the next snapshot waits for the one before at least; it waits patience times as long as one takes.
	period, patience = 500 * time.Millisecond, 4
	// staleness is after how long it is looked again though nothing has changed: notes end by time.
	staleness = time.Minute
)

// hub has the last snapshot of a source, and tells who reads it of the next one.
type hub struct {
	from  source
	marks *marks

	mu sync.Mutex
	// facts are the last ones, and message is their snapshot, as number sequence.
	facts    *facts
	message  []byte
	sequence int
	// next is closed when there is another message.
	next chan struct{}
}

func newHub(from source) *hub { return &hub{from: from, marks: newMarks(), next: make(chan struct{})} }

// look reads the source, and has another message where something has changed.
func (h *hub) look(ctx context.Context) error {
	found, err := h.from.look(ctx)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	message, err := json.Marshal(snapshotOf(found, h.marks))
	if err != nil {
		return fmt.Errorf("encoding what was found: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts = found
	if bytes.Equal(message, h.message) {
		return nil
	}
	h.message, h.sequence = message, h.sequence+1
	close(h.next)
	h.next = make(chan struct{})
	return nil
}

// last returns the last message with its number, and what is closed when there is another one.
func (h *hub) last() (message []byte, sequence int, next <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.message, h.sequence, h.next
}

// seen returns the last facts.
func (h *hub) seen() *facts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts
}

// run looks when there may be something else, until ctx ends.
func (h *hub) run(ctx context.Context) {
	again := time.NewTicker(staleness)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.from.changes():
		case <-again.C:
		}
		begun := time.Now()
		_ = h.look(ctx) // a cache in memory fails with ctx alone, and what was seen stays
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(period, patience*time.Since(begun))):
		}
	}
}
