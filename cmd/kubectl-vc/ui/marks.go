package ui

import (
	"strconv"
	"strings"
	"unicode"
)

// colours is how many colours tenants have: further ones share them, and no two have the same letters.
const colours = 12

// marks are the letters and colours of tenants, which each keeps while it is there.
type marks struct {
	byKey map[string]mark
	taken map[string]bool
	// next is the colour of the next tenant.
	next int
}

type mark struct {
	letters string
	colour  int
}

func newMarks() *marks { return &marks{byKey: map[string]mark{}, taken: map[string]bool{}} }

// of returns those of a tenant, by its root namespace: for a new one the first letter of its name, that with another one, or
// with a number.
func (m *marks) of(key, name string) (letters string, colour int) {
	if known, is := m.byKey[key]; is {
		return known.letters, known.colour
	}
	letters = m.lettersOf(name[strings.LastIndex(name, "/")+1:])
	m.byKey[key], m.taken[letters] = mark{letters: letters, colour: m.next}, true
	m.next = (m.next + 1) % colours
	return letters, m.byKey[key].colour
}

func (m *marks) lettersOf(name string) string {
	all := []rune(strings.ToUpper(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name)))
	if len(all) == 0 {
		all = []rune{'X'}
	}
	first := string(all[:1])
	candidates := []string{first}
	for _, second := range all[1:] {
		candidates = append(candidates, first+string(second))
	}
	for _, letters := range candidates {
		if !m.taken[letters] {
			return letters
		}
	}
	for i := 1; ; i++ {
		if letters := first + strconv.Itoa(i); !m.taken[letters] {
			return letters
		}
	}
}

// keep forgets tenants that are not there.
func (m *marks) keep(there map[string]int) {
	for key, mark := range m.byKey {
		if _, is := there[key]; !is {
			delete(m.byKey, key)
			delete(m.taken, mark.letters)
		}
	}
}
