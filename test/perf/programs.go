package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/controlplane/launch"
	"github.com/superpool/superpool/test/pool"
)

// program is a process of the bed. Those of one group are counted together.
type program struct {
	group   string
	process *launch.Process
	// pooled, metrics and pprof are those of our programs.
	pooled         *pool.Program
	metrics, pprof string
}

type programs []*program

func (p *programs) add(group string, process *launch.Process) *program {
	added := &program{group: group, process: process}
	*p = append(*p, added)
	return added
}

// addControlPlane adds the processes of a control plane: "tenant kube-apiserver", "super etcd".
func (p *programs) addControlPlane(side string, c *controlplane.ControlPlane) {
	for _, process := range c.Processes() {
		p.add(side+" "+process.Name[:strings.LastIndex(process.Name, "-")], process)
	}
}

// cpu returns the CPU time that each group has used until now, in seconds.
func (p programs) cpu() (map[string]float64, error) {
	used := map[string]float64{}
	for _, program := range p {
		seconds, err := cpuOf(program.process.PID())
		if err != nil {
			return nil, fmt.Errorf("reading the CPU time of %s: %w", program.process.Name, err)
		}
		used[program.group] += seconds
	}
	return used, nil
}

// ticks is how many clock ticks Linux reports for a second.
const ticks = 100

// cpuOf returns the CPU time of a process in seconds.
func cpuOf(pid int) (float64, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; user and system time are the 12th and 13th field after it.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks, errors.Join(err1, err2)
}

// rss returns the resident memory in bytes.
func (p *program) rss() (float64, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.process.PID()), "statm"))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(content))[1], 64)
	return pages * float64(os.Getpagesize()), err
}

// heap returns what a program holds after a garbage collection, in bytes.
func (p *program) heap(ctx context.Context) (float64, error) {
	content, err := get(ctx, p.pprof+"heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAlloc.FindStringSubmatch(string(content))
	if found == nil {
		return 0, fmt.Errorf("the heap profile of %s has no HeapAlloc", p.group)
	}
	return strconv.ParseFloat(found[1], 64)
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// families returns the metrics of a program.
func (p *program) families(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	content, err := get(ctx, p.metrics)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("parsing the metrics of %s: %w", p.group, err)
	}
	return families, nil
}

// writes returns how many requests a program has sent that change something.
func (p *program) writes(ctx context.Context) (float64, error) {
	families, err := p.families(ctx)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, metric := range families["rest_client_requests_total"].GetMetric() {
		if changes(labelsOf(metric)["method"]) {
			total += metric.GetCounter().GetValue()
		}
	}
	return total, nil
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, response.Status)
	}
	return content, err
}
