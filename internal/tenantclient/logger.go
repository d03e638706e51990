package tenantclient

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

const (
	// logBytesPerSecond and logBurst bound what is logged of one tenant: a megabyte a minute, and one at once.
	// client-go writes each error of a list and of a watch, the tenant's text in it, and whole objects that it did not
	// expect.
	logBytesPerSecond = 16 << 10
	logBurst          = 1 << 20
	// maxValue bounds one value of a line, such as an error or the stack of a panic.
	maxValue = 16 << 10
	// lineBytes is what a line takes besides its values, about.
	lineBytes = 200
	// boundedLevel is the largest V that is bounded: programs run with 2, and who asks for more wants to see all.
	boundedLevel = 2
)

// logged is how much of one tenant is logged.
type logged struct {
	limiter *rate.Limiter
	// left is how many lines were left out since the last one.
	left atomic.Int64
}

// sink is a logr.LogSink that cuts what is long and leaves out what is too much.
type sink struct {
	logr.LogSink
	logged *logged
	// size is that of a line besides its values.
	size int
}

// Logger returns a logger that writes what another one does, but no more of the tenant than it may have written, here
// and within Serve together.
func (b *Bounds) Logger(inner klog.Logger) klog.Logger {
	if b == nil {
		return inner
	}
	return b.logged.bounded(inner)
}

// bounded returns a logger that writes what another one does, within the bounds.
func (l *logged) bounded(inner klog.Logger) klog.Logger {
	if inner.GetSink() == nil {
		return inner
	}
	return inner.WithSink((&sink{LogSink: inner.GetSink(), logged: l, size: lineBytes}).below(1))
}

// below returns a sink that takes the line of code so many calls up for that of its caller.
func (s *sink) below(depth int) *sink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return &sink{LogSink: deep.WithCallDepth(depth), logged: s.logged, size: s.size}
	}
	return s
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s *sink) WithCallDepth(depth int) logr.LogSink { return s.below(depth) }

// WithName implements logr.LogSink.
func (s *sink) WithName(name string) logr.LogSink {
	return &sink{LogSink: s.LogSink.WithName(name), logged: s.logged, size: s.size}
}

// WithValues implements logr.LogSink.
func (s *sink) WithValues(values ...any) logr.LogSink {
	short, size := shortValues(values)
	return &sink{LogSink: s.LogSink.WithValues(short...), logged: s.logged, size: s.size + size}
}

// Info implements logr.LogSink.
func (s *sink) Info(level int, message string, values ...any) {
	if level > boundedLevel {
		s.LogSink.Info(level, message, values...)
	} else if short, admitted := s.admit(values, nil); admitted {
		s.LogSink.Info(level, message, short...)
	}
}

// Error implements logr.LogSink.
func (s *sink) Error(err error, message string, values ...any) {
	if err != nil {
		if text := err.Error(); len(text) > maxValue {
			err = errors.New(cut(text, maxValue, strconv.Itoa(len(text))))
		}
	}
	if short, admitted := s.admit(values, err); admitted {
		s.LogSink.Error(err, message, short...)
	}
}

// admit returns the values of a line as they are to be written, and whether it may be.
func (s *sink) admit(values []any, err error) ([]any, bool) {
	short, size := shortValues(values)
	size += s.size
	if err != nil {
		size += len(err.Error()) // it was cut
	}
	if !s.logged.limiter.AllowN(time.Now(), size) {
		s.logged.left.Add(1)
		return nil, false
	}
	if left := s.logged.left.Swap(0); left > 0 {
		short = append(short, "linesLeftOut", left)
	}
	return short, true
}

// shortValues returns values as they are, but for those that are too long, and how many bytes they take.
func shortValues(values []any) (short []any, size int) {
	short = make([]any, 0, len(values)+2)
	for _, value := range values {
		var text string
		switch of := value.(type) {
		case runtime.Object: // client-go would write it out
			text = fmt.Sprintf("%T", of)
			value = text
		case watch.Event:
			text = "event " + string(of.Type)
			value = text
		default:
			text = fmt.Sprint(of)
		}
		if len(text) > maxValue {
			value = cut(text, maxValue, strconv.Itoa(len(text)))
		}
		size += min(len(text), maxValue)
		short = append(short, value)
	}
	return short, size
}
