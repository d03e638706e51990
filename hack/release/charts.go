package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/hack/release/chart"
	"github.com/superpool/superpool/manifests/parameters"
)

// Schemas of values, by how Kubernetes names their types.
var (
	anyText    = chart.Schema{"type": "string"}
	filled     = chart.Schema{"type": "string", "minLength": 1}
	boolean    = chart.Schema{"type": "boolean"}
	count      = chart.Schema{"type": "integer", "minimum": 0}
	flags      = chart.Schema{"type": "array", "items": matching("^-")}
	stringMap  = chart.Schema{"type": "object", "additionalProperties": anyText}
	quantities = chart.Schema{"type": "object", "additionalProperties": chart.Schema{"type": []string{"string", "number"}}}
	resources  = fields(chart.Schema{"requests": quantities, "limits": quantities, "claims": list(chart.Schema{"type": "object"})})
	affinity   = fields(chart.Schema{"nodeAffinity": chart.Schema{"type": "object"}, "podAffinity": chart.Schema{"type": "object"}, "podAntiAffinity": chart.Schema{"type": "object"}})
	tolerated  = list(fields(chart.Schema{"key": anyText, "operator": anyText, "value": anyText, "effect": anyText, "tolerationSeconds": chart.Schema{"type": "integer"}}))
	names      = list(chart.Schema{"type": "object", "additionalProperties": false, "properties": chart.Schema{"name": filled}, "required": []string{"name"}})
	named      = list(chart.Schema{"type": "object", "required": []string{"name"}})
)

func matching(pattern string) chart.Schema { return chart.Schema{"type": "string", "pattern": pattern} }

func list(items chart.Schema) chart.Schema { return chart.Schema{"type": "array", "items": items} }

func fields(properties chart.Schema) chart.Schema {
	return chart.Schema{"type": "object", "additionalProperties": false, "properties": properties}
}

// pod is where the template of pods of a Deployment has what.
func pod(what string) string { return "spec/template/spec/" + what }

// container is where the container of a Deployment has what.
func container(what string) string { return pod("containers/0/" + what) }

// imageOf is the image of a chart with one program.
const imageOf = "{{ .Values.registry }}/{{ .Values.image }}"

// workload returns the values of the Deployment of a program, which are below group, or at the top for "". Where the
// image is, words says.
func workload(group, deployment, image string) []chart.Parameter {
	prefix := ""
	if group != "" {
		prefix = group + "."
	}
	one := func(value, what string, schema chart.Schema, initial any, place string) chart.Parameter {
		return chart.Parameter{Value: prefix + value, What: what, Schema: schema, Default: initial, Fields: []chart.Field{{Object: "Deployment/" + deployment, Path: place}}}
	}
	return []chart.Parameter{
		{
			Value: prefix + "image", What: "The image, behind the registry. Give a digest, and no tag that is another image tomorrow.",
			Schema: matching(parameters.Reference), Default: path.Base(image),
		},
		one("replicas", "How many pods.", count, nil, "spec/replicas"),
		one("resources", "Requests and limits of the container. goMemLimit goes with the limit of memory.", resources, nil, container("resources")),
		one("goMemLimit", "GOMEMLIMIT: where Go collects garbage harder, 90 % of the limit of memory.",
			matching("^[0-9]+([KMGT]i)?B$"), nil, container("env/GOMEMLIMIT/value")),
		one("extraArgs", "Flags behind those of the release. Of a flag that is there twice the last one holds.", flags, []any{}, container("args/-")),
		one("nodeSelector", "Labels of the nodes that the pods may run on.", stringMap, map[string]any{}, pod("nodeSelector")),
		one("tolerations", "Taints of nodes that the pods tolerate.", tolerated, []any{}, pod("tolerations")),
		one("affinity", "Which nodes and neighbours the pods prefer or need.", affinity, map[string]any{}, pod("affinity")),
		one("priorityClassName", "The PriorityClass of the pods.", anyText, "", pod("priorityClassName")),
	}
}

// shared returns the values of several Deployments.
func shared(registry string, deployments ...string) []chart.Parameter {
	secrets := chart.Parameter{
		Value: "imagePullSecrets", What: "Secrets of the namespace vc-manager with the credentials of the registry, by name.", Schema: names, Default: []any{},
	}
	mirror := chart.Parameter{Value: "registry", What: "What is before the name of each image: that of the release, or of your mirror.", Schema: matching(parameters.Registry.Pattern), Default: registry}
	for _, deployment := range deployments {
		secrets.Fields = append(secrets.Fields, chart.Field{Object: "Deployment/" + deployment, Path: pod("imagePullSecrets")})
	}
	return []chart.Parameter{mirror, secrets}
}

// namespace says whether the chart makes the namespace of our programs.
var namespace = chart.Parameter{
	Value: "namespace.create", Schema: boolean, Default: true, Fields: []chart.Field{{Object: "Namespace/vc-manager"}},
	What: "Whether namespace vc-manager is of this release. It stays when the release is deleted. Where it is there already: false.",
}

// charts returns the charts of a release, from files with pinned images.
func charts(files []file, version, registry string, images map[string]string) ([]*chart.Chart, error) {
	var problems []error
	build := func(kustomization string) []chart.Object {
		text, err := kustomize(files, "manifests/"+kustomization)
		objects, parsed := parse(text)
		problems = append(problems, err, parsed)
		return objects
	}
	common := chart.Chart{Version: strings.TrimPrefix(version, "v"), AppVersion: version}
	meta, syncer, agent := common, common, common
	meta.KubeVersion, syncer.KubeVersion = ">=1.30.0-0", ">=1.30.0-0" // ValidatingAdmissionPolicies of the meta cluster

	presets := map[string]string{}
	for _, preset := range parameters.Presets {
		presets[preset] = "TenantPolicy/" + parameters.PolicyOf(preset)
	}
	definitions, base := split(build("base"))
	meta.Name, meta.Description = "superpool", "The meta cluster of a pool: definitions, vc-scheduler, vc-manager, policies"
	meta.Parts = []chart.Part{
		{File: "crds", Objects: definitions},
		{File: "base", Objects: base},
		{File: "vc-manager", Objects: build("vc-manager"), When: "manager.enabled"},
		{File: "policies", Objects: build("policies"), When: "policies.enabled"},
		{File: "monitoring", Objects: build("monitoring"), When: "monitoring.enabled"},
	}
	meta.Words = map[string]string{
		images["vc-scheduler"]: "{{ .Values.registry }}/{{ .Values.scheduler.image }}", images["vc-manager"]: "{{ .Values.registry }}/{{ .Values.manager.image }}",
	}
	meta.Groups = map[string]string{
		"namespace": "The namespace of our programs.", "scheduler": "vc-scheduler, which places namespaces and pods of tenants.",
		"manager":  "vc-manager, which makes control planes of tenants: for a meta cluster with nodes and all controllers of Kubernetes.",
		"policies": "What tenants may.", "monitoring": "What Prometheus and Grafana read.",
	}
	meta.Parameters = slices.Concat(
		shared(registry, "vc-scheduler", "vc-manager"), []chart.Parameter{namespace}, workload("scheduler", "vc-scheduler", images["vc-scheduler"]),
		[]chart.Parameter{
			{
				Value: "scheduler.extraVolumes", What: "Volumes of the pods, as a ConfigMap of yours with profiles.", Schema: named, Default: []any{},
				Fields: []chart.Field{{Object: "Deployment/vc-scheduler", Path: pod("volumes")}},
			},
			{
				Value: "scheduler.extraVolumeMounts", What: "Where the container has extraVolumes.", Schema: named, Default: []any{},
				Fields: []chart.Field{{Object: "Deployment/vc-scheduler", Path: container("volumeMounts")}},
			},
			{Value: "manager.enabled", What: "Whether vc-manager runs. Where all tenants are imported: false.", Schema: boolean, Default: true},
		},
		workload("manager", "vc-manager", images["vc-manager"]),
		[]chart.Parameter{
			{
				Value: "policies.enabled", Schema: boolean, Default: false,
				What: "Whether the TenantPolicies are of this release. Helm makes none before the definitions are there: set it by an upgrade, " +
					"and not when you install. Until then tenants have what closed says.",
			},
			{
				Value: "policies.preset", Schema: chart.Schema{"type": "string", "enum": parameters.Presets}, Default: parameters.Presets[0],
				What: "What tenants may whose VirtualCluster names no TenantPolicy: closed, standard or trusted.",
				Fields: []chart.Field{
					{Object: "TenantPolicy/default", Path: "spec", Of: presets},
					{Object: "TenantPolicy/default", Path: "metadata/annotations/tenancy.x-k8s.io~1policies"},
				},
			},
			{
				Value: "monitoring.enabled", Schema: boolean, Default: false,
				What: "Whether there are Services for metrics, a ServiceMonitor, a PrometheusRule and a dashboard: for Prometheus by its operator.",
			},
		})
	meta.Notes = metaNotes

	syncer.Name, syncer.Description = "superpool-syncer", "The syncer of one super cluster, in the meta cluster"
	syncer.Parts = []chart.Part{{File: "syncer", Objects: build("syncer")}}
	syncer.Words = map[string]string{images["syncer"]: imageOf, parameters.ID.Text: "{{ .Values.id }}"}
	deployment := "vc-syncer-" + parameters.ID.Text
	syncer.Parameters = slices.Concat(
		[]chart.Parameter{
			{
				Value: "id", What: "The id of the super cluster, as kubectl vc join was given it. It cannot change.", Default: "", Schema: matching(parameters.ID.Pattern),
			},
			{
				Value: "kubeconfigSecret", Schema: anyText, Default: "",
				What: "The Secret of namespace vc-manager with the kubeconfig of the super cluster, in key config. kubectl vc join makes vc-syncer-ID, " +
					"which it is where this is empty. No value has the kubeconfig itself.",
				Fields: []chart.Field{{
					Object: "Deployment/" + deployment, Path: pod("volumes/super-cluster/secret/secretName"),
					Expression: `.Values.kubeconfigSecret | default (printf "vc-syncer-%s" .Values.id)`,
				}},
			},
		},
		shared(registry, deployment), workload("", deployment, images["syncer"]))
	syncer.Notes = syncerNotes

	agent.Name, agent.Description = "superpool-agent", "vn-agent in API server mode, in a super cluster"
	agent.Parts = []chart.Part{
		{File: "agent", Objects: build("vn-agent/apiserver")},
		{File: "monitoring", Objects: build("monitoring/vn-agent"), When: "monitoring.enabled"},
	}
	agent.Words = map[string]string{images["vn-agent"]: imageOf}
	agent.Groups = map[string]string{
		"namespace": "The namespace of vn-agent.", "service": "The Service that API servers of tenants connect to.", "monitoring": "What Prometheus reads.",
	}
	agent.Parameters = slices.Concat(
		shared(registry, "vn-agent"), []chart.Parameter{namespace}, workload("", "vn-agent", images["vn-agent"]),
		[]chart.Parameter{
			{
				Value: "tlsSecret", What: "The Secret of namespace vc-manager with the serving certificate and its key. No value has the key itself.", Schema: filled,
				Fields: []chart.Field{{Object: "Deployment/vn-agent", Path: pod("volumes/serving/secret/secretName")}},
			},
			{
				Value: "clientCAConfigMap", What: "The ConfigMap of namespace vc-manager with the CA of tenants' identities, in key ca.crt.", Schema: filled,
				Fields: []chart.Field{{Object: "Deployment/vn-agent", Path: pod("volumes/clients/configMap/name")}},
			},
			{
				Value: "service.type", What: "LoadBalancer, NodePort or ClusterIP.", Schema: chart.Schema{"type": "string", "enum": []string{"LoadBalancer", "NodePort", "ClusterIP"}},
				Fields: []chart.Field{{Object: "Service/vn-agent", Path: "spec/type"}},
			},
			{
				Value: "service.annotations", What: "What a cloud's load balancers are told.", Schema: stringMap, Default: map[string]any{},
				Fields: []chart.Field{{Object: "Service/vn-agent", Path: "metadata/annotations"}},
			},
			{
				Value: "service.loadBalancerSourceRanges", What: "Who may connect to the load balancer: the addresses of tenants' API servers.", Schema: list(anyText), Default: []any{},
				Fields: []chart.Field{{Object: "Service/vn-agent", Path: "spec/loadBalancerSourceRanges"}},
			},
			{Value: "monitoring.enabled", What: "Whether there are a Service for metrics and a ServiceMonitor: for Prometheus by its operator.", Schema: boolean, Default: false},
		})
	agent.Notes = agentNotes
	return []*chart.Chart{&meta, &syncer, &agent}, errors.Join(problems...)
}

// parse returns the objects of what kustomize prints.
func parse(text []byte) ([]chart.Object, error) {
	var objects []chart.Object
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object chart.Object
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("reading what kustomize has built: %w", err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// split returns definitions, and the others.
func split(objects []chart.Object) (definitions, others []chart.Object) {
	for _, object := range objects {
		if object["kind"] == "CustomResourceDefinition" {
			definitions = append(definitions, object)
		} else {
			others = append(others, object)
		}
	}
	return definitions, others
}

// writeCharts writes each chart as Helm names its archive.
func (r *release) writeCharts(files []file, images map[string]string) error {
	made, err := charts(files, r.version, r.registry, images)
	if err != nil {
		return err
	}
	for _, c := range made {
		content, err := c.Files()
		if err != nil {
			return err //nolint:wrapcheck // it says what it did
		}
		var packed []file
		for _, name := range slices.Sorted(maps.Keys(content)) {
			packed = append(packed, file{path: name, content: content[name]})
		}
		archived, err := archive(c.Name, packed, r.created)
		if err != nil {
			return err
		}
		if err := r.save("charts/"+c.Name+"-"+c.Version+".tgz", archived); err != nil {
			return err
		}
	}
	return nil
}

// installAll returns all of the meta cluster in one file: definitions first, and what is of their kinds last.
func installAll(files []file) ([]byte, error) {
	var documents []string
	for _, kustomization := range []string{"base", "vc-manager", "policies"} {
		text, err := kustomize(files, "manifests/"+kustomization)
		if err != nil {
			return nil, err
		}
		documents = append(documents, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n---\n")...)
	}
	slices.SortStableFunc(documents, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return []byte(strings.Join(documents, "\n---\n") + "\n"), nil
}

// rank is the place of a document of installAll.
func rank(document string) int {
	for i, kind := range []string{"CustomResourceDefinition", "Namespace"} {
		if strings.Contains("\n"+document, "\nkind: "+kind+"\n") {
			return i
		}
	}
	return 2
}
