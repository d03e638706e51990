package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Ask asks a person, and returns an error unless the answer is yes.
func (c *CLI) Ask(ctx context.Context, question string) error {
	if in, isFile := c.In.(*os.File); isFile && !term.IsTerminal(int(in.Fd())) {
		_, _ = fmt.Fprintln(c.ErrOut, question) // as below
		return errors.New("nobody is there to ask: use --yes")
	}
	_, _ = fmt.Fprintf(c.ErrOut, "%s [y/N] ", question) // nobody answers who does not read it
	answers := make(chan string, 1)
	go func() { // it ends with the process
		answer, _ := bufio.NewReader(c.In).ReadString('\n') // no answer is one
		answers <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("nothing was changed")
}
