{{/* The name of everything: that of the release, with the chart's unless it has it already. */}}
{{- define "ramet.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ramet.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ramet.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "ramet.selector" . }}
{{- end -}}

{{- define "ramet.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "ramet.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The secret that has the keys; empty: there are none. */}}
{{- define "ramet.keys" -}}
{{- with .Values.keys -}}
{{- if .existingSecret -}}
{{- .existingSecret -}}
{{- else if or .apiKey .adminApiKey .clients -}}
{{- printf "%s-keys" (include "ramet.name" $) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Not empty: that secret has a file with a key for each client. */}}
{{- define "ramet.clients" -}}
{{- with .Values.keys -}}
{{- if and .clientsInSecret (not .existingSecret) -}}
{{- fail "keys.clientsInSecret needs keys.existingSecret, which has the file" -}}
{{- end -}}
{{- if and .clients .existingSecret -}}
{{- fail "keys.clients and keys.existingSecret: put the file into that secret, as api-keys, and set keys.clientsInSecret" -}}
{{- end -}}
{{- if and .clients .apiKey -}}
{{- fail "keys.clients and keys.apiKey: give that key a name in keys.clients" -}}
{{- end -}}
{{- if and .clients (not .adminApiKey) -}}
{{- fail "keys.clients needs keys.adminApiKey: operators and Prometheus send it" -}}
{{- end -}}
{{- if and (eq (.cacheIsolation | default "auto") "key") (not (or .clients .clientsInSecret)) -}}
{{- fail "keys.cacheIsolation is key: that needs keys.clients or keys.clientsInSecret" -}}
{{- end -}}
{{- if or .clients .clientsInSecret -}}file{{- end -}}
{{- end -}}
{{- end -}}

{{/* The names by which clients in the cluster and behind the ingress reach it. */}}
{{- define "ramet.hosts" -}}
{{- $name := include "ramet.name" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) -}}
{{- $hosts = append $hosts (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = append $hosts .Values.ingress.host -}}
{{- end -}}
{{- concat $hosts .Values.allowedHosts | join "," -}}
{{- end -}}

{{- define "ramet.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ if .root.Values.tls.secretName }}HTTPS{{ else }}HTTP{{ end }}
periodSeconds: {{ .periodS }}
failureThreshold: {{ .failures }}
timeoutSeconds: {{ .root.Values.probes.timeoutS }}
{{- end -}}

{{- define "ramet.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "ramet.name" .root }}-{{ .what }}
  labels: {{- include "ramet.labels" .root | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: {{- toYaml .claim.accessModes | nindent 4 }}
  {{- with .claim.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .claim.size }}
{{- end -}}
