// Package report is the verb that collects what a bug report needs of a meta cluster. Only what lists name is taken: fields of
// objects (sources.go) and parts of log lines (logs.go). What nobody has thought of stays out.
package report

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/version"
)

const (
	// mostBytes is how much an archive has before it is compressed, and mostOfFile each of its files, and each log.
	mostBytes, mostOfFile, mostOfLog = 64 << 20, 8 << 20, 1 << 20
	// readOfLog is how much of a log is asked for, and mostLines how many lines: the last ones.
	readOfLog, mostLines = 8 << 20, 10000
	// pageSize is how many objects a request lists.
	pageSize = 500
	// defaultTime is how long all takes at most.
	defaultTime = 2 * time.Minute
	// mostPods is how many pods' logs are taken.
	mostPods = 200
)

// verbs is what the verbs of this package are methods of.
type verbs struct{ *cli.CLI }

// Commands returns the verbs.
func Commands(shared *cli.CLI) []*cobra.Command {
	c := &verbs{shared}
	command := &cobra.Command{
		Use: "debug", Short: "Collect what a bug report needs", Long: "debug has verbs for whoever looks for a mistake of Superpool.", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return errors.New("give a verb: kubectl vc debug collect") },
	}
	command.AddCommand(c.collect())
	return []*cobra.Command{command}
}

// collection is what one run collects.
type collection struct {
	*verbs
	dry     cli.DryRun
	output  string
	timeout time.Duration

	cluster client.Client
	clients kubernetes.Interface
	archive *archive
	// missing is what could not be read, and why.
	missing []string
}

// collect returns the command.
func (c *verbs) collect() *cobra.Command {
	o := &collection{verbs: c}
	command := &cobra.Command{
		Use:   "collect",
		Short: "Write versions, conditions, Events and logs of Superpool into one archive",
		Long: `collect reads the meta cluster, and writes a tar.gz for a bug report: versions, some fields of the objects of Superpool and of its
programs, their conditions and Events, and of the logs of its programs when what was written where, with names of objects. There is no
Secret in it, no kubeconfig, no variable of a container, no argument of a program, and nothing of tenants' objects but names and
quotas. Only what a list in the program names is taken. Names of tenants, namespaces and super clusters are in it, and what conditions
and Events say: look at it before you send it to anybody.

What your kubeconfig does not let you read is left out, and file MISSING.txt lists it. The archive is of the meta cluster alone: logs of
vn-agents are in super clusters.`,
		Example: "  kubectl vc debug collect --dry-run=client\n  kubectl vc debug collect -o report.tar.gz",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return o.run(command.Context(), time.Now()) },
	}
	command.Flags().StringVarP(&o.output, "output", "o", "", `file that is made, "-" for the standard output; default: superpool-debug-TIME.tar.gz`)
	command.Flags().DurationVar(&o.timeout, "timeout", defaultTime, "how long to read. What was not read by then is listed as missing")
	o.dry.AddFlags(command.Flags())
	return command
}

// run collects all, or says what it would.
func (o *collection) run(ctx context.Context, now time.Time) error {
	if o.dry != cli.DryRunNone {
		return o.list()
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: %v is no time to read in", o.timeout)
	}
	name := "superpool-debug-" + now.UTC().Format("20060102-150405")
	if o.output == "" {
		o.output = name + ".tar.gz"
	}
	config, err := o.Flags.ToRESTConfig()
	if err != nil {
		return err //nolint:wrapcheck // it names the kubeconfig
	}
	config = rest.CopyConfig(config)
	config.Timeout = cmp.Or(config.Timeout, o.timeout) // not each request has a context
	if o.cluster, err = o.Client(config, "the meta cluster"); err != nil {
		return err //nolint:wrapcheck // it names the cluster
	}
	quiet := rest.CopyConfig(config)
	quiet.WarningHandler = rest.NoWarnings{}
	if o.clients, err = kubernetes.NewForConfig(quiet); err != nil {
		return fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	server, err := o.clients.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the meta cluster for its version: %w", err)
	}
	versions := fmt.Sprintf("kubectl-vc %s\nmeta cluster %s\ncollected %s\n", version.String(), page.Printable(server.GitVersion), now.UTC().Format(time.RFC3339))
	err = o.WriteFile(o.output, "an archive", func(out io.Writer) error {
		o.archive = newArchive(out, name, now, mostBytes)
		return o.write(ctx, versions)
	})
	if err != nil || o.output == "-" {
		return err //nolint:wrapcheck // it says what it did
	}
	_, err = fmt.Fprintf(o.Out, "wrote %s: look at it before you send it to anybody\n", o.output)
	return err //nolint:wrapcheck // it is that of the output
}

// list prints what would be taken.
func (o *collection) list() error {
	_, _ = fmt.Fprintln(o.Out, "versions.txt: versions of kubectl-vc and of the meta cluster") // as below
	for _, of := range sources() {
		_, _ = fmt.Fprintf(o.Out, "%s: %s\n", of.file, of.what) // nobody reads it who has closed it
	}
	_, _ = fmt.Fprintf(o.Out, "logs/: of each program in namespace %s, and of the one before where it has ended\n", tenancyv1alpha1.ManagerNamespace) // as above
	_, err := fmt.Fprintf(o.Out, "MISSING.txt: what could not be read\nnothing was written%s\n", o.dry.Suffix())
	return err //nolint:wrapcheck // it is that of the output
}

// write writes all files. What cannot be read is no error.
func (o *collection) write(ctx context.Context, versions string) error {
	if err := o.archive.add("versions.txt", []byte(versions)); err != nil {
		return err
	}
	reading, stop := context.WithTimeout(ctx, o.timeout)
	defer stop()
	for _, of := range sources() {
		content, err := o.objects(reading, &of)
		if err := o.file(ctx, of.file, of.what, content, err); err != nil {
			return err
		}
	}
	if err := o.logs(ctx, reading); err != nil {
		return err
	}
	for _, missing := range o.missing {
		o.say("missing: " + missing)
	}
	o.archive.left += mostOfFile // there is always room for it
	if err := o.archive.add("MISSING.txt", []byte(strings.Join(append(o.missing, ""), "\n"))); err != nil {
		return err
	}
	return o.archive.close()
}

// say says how far it is.
func (o *collection) say(line string) {
	_, _ = fmt.Fprintln(o.ErrOut, page.Printable(line)) // nobody reads it who has closed it
}

// file adds a file, or notes why it is missing. Its error ends all.
func (o *collection) file(ctx context.Context, name, what string, content []byte, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err() //nolint:wrapcheck // somebody has ended it
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("not read within %v", o.timeout)
	}
	if content != nil {
		added := o.archive.add(name, content)
		if added != nil && !errors.Is(added, errNoRoom) {
			return added
		}
		err = errors.Join(err, added)
		if added == nil {
			o.say("took " + what)
		}
	}
	if err != nil {
		o.missing = append(o.missing, shortened(fmt.Sprintf("%s: %v", what, err)))
	}
	return nil
}

// objects returns the file of a source. With an error it has those that were read before.
func (o *collection) objects(ctx context.Context, of *source) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err() //nolint:wrapcheck // file says it
	}
	mapping, err := o.cluster.RESTMapper().RESTMapping(of.kind)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the kind
	}
	var content bytes.Buffer
	next := ""
	for {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(of.kind.Kind + "List"))
		if err := o.cluster.List(ctx, list, append(of.options, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return content.Bytes(), err //nolint:wrapcheck // it names the kind
		}
		for i := range list.Items {
			if of.is != nil && !of.is(&list.Items[i]) {
				continue
			}
			line, err := json.Marshal(of.fields.of(list.Items[i].Object))
			if err != nil {
				return content.Bytes(), fmt.Errorf("writing %s: %w", of.what, err)
			}
			if content.Len()+len(line) > mostOfFile {
				return content.Bytes(), fmt.Errorf("all beyond %d bytes", mostOfFile)
			}
			content.Write(append(line, '\n'))
		}
		if next = list.GetContinue(); next == "" {
			return content.Bytes(), nil
		}
	}
}

// logs adds those of our programs, and of those of before where one has ended.
func (o *collection) logs(ctx, reading context.Context) error {
	pods := &corev1.PodList{}
	err := o.cluster.List(reading, pods, client.InNamespace(tenancyv1alpha1.ManagerNamespace), client.Limit(mostPods))
	if err != nil {
		return o.file(ctx, "", "logs", nil, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !isOurs(pod) {
			continue
		}
		for _, container := range pod.Spec.Containers {
			what := "log of " + pod.Name + " " + container.Name
			content, err := o.log(reading, pod.Name, container.Name, false)
			if err := o.file(ctx, fmt.Sprintf("logs/%s.%s.log", pod.Name, container.Name), what, content, err); err != nil {
				return err
			}
			if !hasEnded(pod, container.Name) {
				continue
			}
			content, err = o.log(reading, pod.Name, container.Name, true)
			if err := o.file(ctx, fmt.Sprintf("logs/%s.%s.before.log", pod.Name, container.Name), what+" of before", content, err); err != nil {
				return err
			}
		}
	}
	if pods.Continue != "" {
		o.missing = append(o.missing, fmt.Sprintf("logs of all pods behind the first %d", mostPods))
	}
	return nil
}

// hasEnded reports whether a container was started again.
func hasEnded(pod *corev1.Pod, container string) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container {
			return status.RestartCount > 0
		}
	}
	return false
}

// log returns what is taken of a log.
func (o *collection) log(ctx context.Context, pod, container string, before bool) ([]byte, error) {
	stream, err := o.clients.CoreV1().Pods(tenancyv1alpha1.ManagerNamespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, Previous: before, TailLines: ptr.To[int64](mostLines), LimitBytes: ptr.To[int64](readOfLog),
	}).Stream(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the pod
	}
	defer func() { _ = stream.Close() }() // all was read
	return takeLog(io.LimitReader(stream, readOfLog), mostOfLog)
}
