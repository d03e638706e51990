package policy

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubernetes/pkg/fieldpath"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What one object of a tenant may hold, whatever its policy says. Translation writes some of it many times, so it is
// counted before anything is made of it; what costs only what it takes in the tenant is not. An API server lets in
// 1.5 MiB and counts little else.
const (
	// maxLabels and maxLabelBytes bound the labels of a Pod or a Namespace, each of which has 66 bytes and more for a
	// key below, and again in managedFields. The large clouds allow 50 or 64 on what they have.
	maxLabels, maxLabelBytes = 128, 32 << 10
	// maxAnnotationBytes bounds annotations, what files of the downward API show of labels and annotations, and what
	// variables do: an API server allows as much in all annotations of an object.
	maxAnnotationBytes = 256 << 10
	// maxEntries is how many elements the lists and maps of an object may have together that is larger than
	// smallObject, in bytes: to copy, compare and send many small ones takes fifty times of what they are in protobuf.
	// An EndpointSlice of a control plane that asks for as much as it can has 1,000 endpoints. maxMembers bounds
	// decoded JSON, where names count, too, whatever its size.
	maxEntries, maxMembers, smallObject = 5_000, 10_000, 64 << 10
	// maxSpec is how large the spec of a pod may be, in bytes: kubelets write all of it with each change of its status.
	maxSpec = 512 << 10
	// maxImage is how many characters the name of an image has at most, which kubelets write several times into the
	// status of a pod: twice what a registry takes.
	maxImage = 1 << 10
	// maxContainers is how many containers a pod may have, those that initialize it among them: kubelets run 110 pods.
	maxContainers = 500
	// maxResources is how many different resources a pod may name: pods are compared with nodes and quotas by each, and
	// what sidecars request is added to each container that starts after them.
	maxResources = 64
	// maxStatuses bounds the containers of a pod times its statuses of containers: kube-scheduler and others that count
	// its requests look for that of each container among all.
	maxStatuses = 1 << 20
	// maxPorts is how many ports a Service, or the containers of a pod, may have: managedFields take 100 bytes of each,
	// and proxies rules on each node. No API server counts them.
	maxPorts = 1000
	// maxVolumes is how many volumes a pod may have.
	maxVolumes = 1000
	// MaxServiceText bounds what the variables of Services take in all containers of a pod (ServiceText). etcd takes
	// 1.5 MiB, and a pod that has so many takes twice as much with its managedFields.
	MaxServiceText = 1 << 20
	// maxEnvFrom is how many variables envFrom may define in all containers of a pod.
	maxEnvFrom = 32 << 10
	// maxSearches is the API server's bound of nameservers and search domains, maxOptions one of ours: libraries know
	// about twenty options.
	maxSearches, maxOptions = 32, 64
	// MaxTolerations is how many tolerations of a pod go down. Controllers add up to eight.
	MaxTolerations = 64
	// maxTerms is how many affinity terms, anti-affinity terms and spread constraints a pod may have, and maxDemands
	// how large all that it demands of nodes and pods may be, in bytes: schedulers compare them with all pods of the
	// tenant.
	maxTerms, maxDemands = 100, 64 << 10
	// maxRequired bounds the topology keys of a pod, each of which becomes a requirement in each term of its node
	// affinity.
	maxRequired = 10_000
	// maxClaims is how many claims a pod may have: schedulers compare them with all super clusters.
	maxClaims = 100
)

// ExcessOfMetadata says that an object has more labels or annotations than go down, "" if it does not.
func ExcessOfMetadata(object metav1.Object) string {
	labels := object.GetLabels()
	switch {
	case len(labels) > maxLabels:
		return fmt.Sprintf("it has %d labels: at most %d go down", len(labels), maxLabels)
	case sizeOfMap(labels) > maxLabelBytes:
		return fmt.Sprintf("its labels take %d bytes: at most %d go down", sizeOfMap(labels), maxLabelBytes)
	case sizeOfMap(object.GetAnnotations()) > maxAnnotationBytes:
		return fmt.Sprintf("its annotations take %d bytes: at most %d go down", sizeOfMap(object.GetAnnotations()), maxAnnotationBytes)
	}
	return ""
}

// ExcessOfEntries says that an object has more entries than go down, "" if it does not.
func ExcessOfEntries(object client.Object) string {
	entries, most := 0, maxEntries
	if service, ok := object.(*corev1.Service); ok && len(service.Spec.Ports) > maxPorts {
		return fmt.Sprintf("it has %d ports: at most %d go down", len(service.Spec.Ports), maxPorts)
	}
	switch typed := object.(type) {
	case *unstructured.Unstructured:
		entries, most = entriesOfJSON(typed.Object), maxMembers
	case interface{ Size() int }:
		if typed.Size() > smallObject {
			entries = entriesOf(reflect.ValueOf(object).Elem())
		}
	}
	if entries > most {
		return fmt.Sprintf("its lists and maps have %d entries together: at most %d go down", entries, most)
	}
	return ""
}

// typeOfTime is that of what has a table of time zones.
var typeOfTime = reflect.TypeFor[metav1.Time]()

// entriesOf returns how many elements the lists and maps of a value have. Bytes are one value.
func entriesOf(value reflect.Value) (entries int) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			return entriesOf(value.Elem())
		}
	case reflect.Struct:
		if value.Type() == typeOfTime {
			return 0
		}
		for i := range value.NumField() {
			entries += entriesOf(value.Field(i))
		}
	case reflect.Map:
		entries = value.Len()
		if kind := value.Type().Elem().Kind(); kind != reflect.Slice && kind != reflect.Map {
			return entries // of no type of the API are the values structures with lists
		}
		for members := value.MapRange(); members.Next(); {
			entries += entriesOf(members.Value())
		}
	case reflect.Slice:
		return entriesOfSlice(value)
	}
	return entries
}

func entriesOfSlice(value reflect.Value) int {
	kind, entries := value.Type().Elem().Kind(), value.Len()
	switch kind {
	case reflect.Uint8:
		return 0
	case reflect.String:
		return entries
	}
	for i := range value.Len() {
		entries += entriesOf(value.Index(i))
	}
	return entries
}

// entriesOfJSON is entriesOf for decoded JSON, where names of members count, and each list and object besides its
// entries.
func entriesOfJSON(value any) (entries int) {
	switch typed := value.(type) {
	case map[string]any:
		entries = 1 + 2*len(typed)
		for _, member := range typed {
			entries += entriesOfJSON(member)
		}
	case []any:
		entries = 1 + len(typed)
		for _, element := range typed {
			entries += entriesOfJSON(element)
		}
	}
	return entries
}

func sizeOfMap(values map[string]string) (size int) {
	for key, value := range values {
		size += len(key) + len(value)
	}
	return size
}

// ExcessOfAnnotations says that a super pod would have more annotations than an API server takes, "" if it would not.
func ExcessOfAnnotations(annotations map[string]string) string {
	if size := sizeOfMap(annotations); size > maxAnnotationBytes {
		return fmt.Sprintf("the annotations of its super pod would take %d bytes with what files of its downward API show: at most %d go down", size, maxAnnotationBytes)
	}
	return ""
}

// ExcessOfFiles says that the files of a pod's downward API show more labels and annotations than go down, "" if they
// do not. What several files show counts once. Labels and annotations of a running pod change, so it is asked for any
// update.
func ExcessOfFiles(pod *corev1.Pod) string {
	shown := fields{pod: pod}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.DownwardAPI != nil {
			shown.files(volume.DownwardAPI.Items)
		}
		if volume.Projected == nil {
			continue
		}
		for j := range volume.Projected.Sources {
			if source := volume.Projected.Sources[j].DownwardAPI; source != nil {
				shown.files(source.Items)
			}
		}
	}
	if shown.size > maxAnnotationBytes {
		return fmt.Sprintf("the files of its downward API show %d bytes of labels and annotations: at most %d go down", shown.size, maxAnnotationBytes)
	}
	return ""
}

// fields counts what is shown of a pod's labels and annotations.
type fields struct {
	pod  *corev1.Pod
	size int
	// all is how long all labels, or annotations, are as a file has them, by their path.
	all map[string]int
	// shown are the paths that files show.
	shown map[string]struct{}
}

// perField is what a file or variable takes besides what it shows: an annotation of the super pod has a key.
const perField = 40

func (f *fields) files(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if files[i].FieldRef == nil {
			continue
		}
		path := files[i].FieldRef.FieldPath
		if _, known := f.shown[path]; known {
			continue
		}
		if f.shown == nil {
			f.shown = map[string]struct{}{}
		}
		f.shown[path] = struct{}{}
		f.add(path)
	}
}

func (f *fields) add(fieldPath string) {
	path, key, subscripted := fieldpath.SplitMaybeSubscriptedPath(fieldPath)
	var values map[string]string
	switch path {
	case "metadata.labels":
		values = f.pod.Labels
	case "metadata.annotations":
		values = f.pod.Annotations
	default:
		return
	}
	if subscripted {
		f.size += perField + len(values[key])
		return
	}
	size, known := f.all[path]
	if !known {
		for key, value := range values {
			size += len(key) + quotedLen(value) + len("=\n")
		}
		if f.all == nil {
			f.all = map[string]int{}
		}
		f.all[path] = size
	}
	f.size += perField + size
}

// ExcessOfResources says that a pod, or its status, names more resources than are read, or has more statuses of
// containers, "" if it does not. Beyond that it does not ask which of them are the same.
func ExcessOfResources(pod *corev1.Pod) string {
	containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	statuses := len(pod.Status.InitContainerStatuses) + len(pod.Status.ContainerStatuses)
	if containers*statuses > maxStatuses {
		return fmt.Sprintf("it has %d containers and %d statuses of them: one times the other is at most %d", containers, statuses, maxStatuses)
	}
	named, all := map[corev1.ResourceName]struct{}{}, 0
	add := func(lists ...corev1.ResourceList) {
		for _, list := range lists {
			all += len(list)
			for name := range list {
				if len(named) > maxResources {
					break
				}
				named[name] = struct{}{}
			}
		}
	}
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			add(containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	for _, statuses := range [...][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			add(statuses[i].AllocatedResources)
			if resources := statuses[i].Resources; resources != nil {
				add(resources.Requests, resources.Limits)
			}
		}
	}
	if resources := pod.Spec.Resources; resources != nil {
		add(resources.Requests, resources.Limits)
	}
	if resources := pod.Status.Resources; resources != nil {
		add(resources.Requests, resources.Limits)
	}
	add(pod.Spec.Overhead, pod.Status.AllocatedResources)
	if len(named) > maxResources {
		return fmt.Sprintf("it has %d resource names, more than %d different ones: at most %d are read", all, maxResources, maxResources)
	}
	return ""
}

// Around is what is written into the containers of a pod besides their own.
type Around struct {
	// Services are those with variables.
	Services []*corev1.Service
	// Keys returns how many variables an envFrom source defines; nil: none.
	Keys func(source *corev1.EnvFromSource) int
}

// ExcessOfPod says what a new pod has more of than goes down, "" for nothing.
func ExcessOfPod(pod *corev1.Pod, around Around) string {
	spec := &pod.Spec
	if excess := ExcessOfMetadata(pod); excess != "" {
		return excess
	}
	if excess := ExcessOfFiles(pod); excess != "" {
		return excess
	}
	if excess := ExcessOfContainers(pod, around, spec.InitContainers, spec.Containers); excess != "" {
		return excess
	}
	if excess := ExcessOfResources(pod); excess != "" {
		return excess
	}
	if config := spec.DNSConfig; config != nil {
		switch {
		case len(config.Options) > maxOptions:
			return fmt.Sprintf("its dnsConfig has %d options: at most %d go down", len(config.Options), maxOptions)
		case max(len(config.Searches), len(config.Nameservers)) > maxSearches:
			return fmt.Sprintf("its dnsConfig has %d searches and %d nameservers: at most %d go down", len(config.Searches), len(config.Nameservers), maxSearches)
		}
	}
	if len(spec.Volumes) > maxVolumes {
		return fmt.Sprintf("it has %d volumes: at most %d go down", len(spec.Volumes), maxVolumes)
	}
	if excess := ExcessOfDemands(spec); excess != "" {
		return excess
	}
	if excess := ExcessOfEntries(pod); excess != "" {
		return excess
	}
	return ExcessOfSpec(spec, nil)
}

// ExcessOfSpec says that a spec is larger than goes down, or the name of an image in it; "" if not. existing is the
// spec of the super pod that is to become this one, nil for the spec of a new pod of a tenant, which has no variables
// of Services yet: what exists may stay.
func ExcessOfSpec(spec, existing *corev1.PodSpec) string {
	size, most, images := spec.Size(), maxSpec, map[string]string{}
	if existing != nil {
		most = max(2*maxSpec, existing.Size())
		visitImages(existing, func(container, image string) { images[container] = image })
	}
	if size > most {
		return fmt.Sprintf("its spec takes %d bytes: at most %d go down", size, most)
	}
	excess := ""
	visitImages(spec, func(container, image string) {
		if len(image) > maxImage && images[container] != image {
			excess = fmt.Sprintf("the image of its container %s has %d characters: at most %d go down", container, len(image), maxImage)
		}
	})
	return excess
}

// visitImages calls visit with the name and the image of each container.
func visitImages(spec *corev1.PodSpec, visit func(container, image string)) {
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			visit(containers[i].Name, containers[i].Image)
		}
	}
	for i := range spec.EphemeralContainers {
		visit(spec.EphemeralContainers[i].Name, spec.EphemeralContainers[i].Image)
	}
}

// ExcessOfContainers says that there are more of these containers of a pod than go down, or that more is written into
// them; "" for neither.
func ExcessOfContainers(pod *corev1.Pod, around Around, lists ...[]corev1.Container) string {
	count, ports, defined, shown := 0, 0, 0, fields{pod: pod}
	for _, containers := range lists {
		count += len(containers)
		for i := range containers {
			ports += len(containers[i].Ports)
			for j := range containers[i].Env {
				if source := containers[i].Env[j].ValueFrom; source != nil && source.FieldRef != nil {
					shown.add(source.FieldRef.FieldPath)
				}
			}
			for j := range containers[i].EnvFrom {
				if around.Keys != nil {
					defined += around.Keys(&containers[i].EnvFrom[j])
				}
			}
		}
	}
	text := 0
	for _, service := range around.Services {
		text += ServiceText(service)
	}
	switch {
	case count > maxContainers:
		return fmt.Sprintf("it has %d containers: at most %d go down", count, maxContainers)
	case ports > maxPorts:
		return fmt.Sprintf("its containers have %d ports: at most %d go down", ports, maxPorts)
	case shown.size > maxAnnotationBytes:
		return fmt.Sprintf("the variables of its containers show %d bytes of labels and annotations: at most %d go down", shown.size, maxAnnotationBytes)
	case count*text > MaxServiceText:
		return fmt.Sprintf("the variables of Services take %d bytes or more in its %d containers: at most %d go down, and with enableServiceLinks false only those of the API server do",
			count*text, count, MaxServiceText)
	case defined > maxEnvFrom:
		return fmt.Sprintf("envFrom of its containers defines %d variables: at most %d are read", defined, maxEnvFrom)
	}
	return ""
}

// ServiceText returns what the variables of a Service take in one container, in bytes: no less than they do.
func ServiceText(service *corev1.Service) int {
	names := 0
	for i := range service.Spec.Ports {
		names += len(service.Spec.Ports[i].Name)
	}
	// Two of the Service, a link, and five of each port: the longest suffix is _PORT_65535_SCTP_PROTO.
	return names + (3+5*len(service.Spec.Ports))*(len(service.Name)+len(service.Spec.ClusterIP)+32)
}

// ExcessOfDemands says that a spec demands more of nodes and other pods than is read, "" if it does not.
func ExcessOfDemands(spec *corev1.PodSpec) string {
	spread := spec.TopologySpreadConstraints
	terms, size, nodeTerms, claims := len(spread), sizeOfMap(spec.NodeSelector), 0, 0
	for i := range spread {
		size += spread[i].Size()
	}
	for i := range spec.Tolerations {
		size += spec.Tolerations[i].Size()
	}
	keys := len(spread)
	if affinity := spec.Affinity; affinity != nil {
		size += affinity.Size()
		if peers := affinity.PodAffinity; peers != nil {
			keys += len(peers.RequiredDuringSchedulingIgnoredDuringExecution)
			terms += len(peers.RequiredDuringSchedulingIgnoredDuringExecution) + len(peers.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if peers := affinity.PodAntiAffinity; peers != nil {
			terms += len(peers.RequiredDuringSchedulingIgnoredDuringExecution) + len(peers.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			nodeTerms = len(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		}
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].PersistentVolumeClaim != nil || spec.Volumes[i].Ephemeral != nil {
			claims++
		}
	}
	switch {
	case claims > maxClaims:
		return fmt.Sprintf("the pod has %d claims: at most %d are read", claims, maxClaims)
	case terms > maxTerms:
		return fmt.Sprintf("the pod has %d terms of pod affinity, anti-affinity and topology spread: at most %d are read", terms, maxTerms)
	case size > maxDemands:
		return fmt.Sprintf("the pod's affinity, node selector, tolerations and topology spread take %d bytes: at most %d are read", size, maxDemands)
	case keys*nodeTerms > maxRequired:
		return fmt.Sprintf("the pod has %d topology keys and %d terms of node affinity: their product may be at most %d", keys, nodeTerms, maxRequired)
	}
	return ""
}
