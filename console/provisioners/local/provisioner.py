"""Run workloads as supervisord programs on this machine.

Each replica is one supervisor program in its own group, whose command is the processkit launcher
in the replica's folder. supervisord restarts exited processes without the console; this module
only adds, stops and removes programs. Every verb takes the workload's lock, completes what an
earlier call began (`_settle`), performs its own steps and returns without waiting for a process.
The order of steps makes a crash between any two harmless:

    start    state (hash unknown, ports) → files → program file → supervisord → state (hash)
    replace  state (goal replace) → stop; when stopped, the next apply starts it as above
    remove   state (goal remove) → program file away → stop; when stopped: program out of
             supervisord → leftover processes → log, folder → state

A program or folder without state is adopted with an unknown hash, and so replaced or removed as
outdated. A replica that supervisord gave up on, or that was stopped by hand, is restarted by the
next apply.

`cpus` and `memory_bytes` are not enforced. Specs that request GPUs are rejected.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from console.processkit import changes
from console.provisioners.base import (
    Observation,
    PermanentError,
    ProvisionError,
    Ref,
    ReplicaObservation,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)
from console.provisioners.local import folders, observation, ports, state
from console.provisioners.local.hung import hung_processes
from console.provisioners.local.rpc import AT_REST, ProcessInfo, ProcessState, Supervisor
from console.provisioners.local.state import Goal, Replica, Workload, ports_lock, workload_lock
from console.provisioners.local.supervisord import (
    UnsafeValueError,
    include_dir,
    log_path,
    socket_path,
)
from console.provisioners.rollout import plan_step
from console.provisioners.specs import check_ref, check_spec, read_secrets

Infos = dict[str, ProcessInfo]


class LocalProvisioner:
    name = "local"
    rolls = False

    def __init__(self, var: Path) -> None:
        self._var = var.resolve()
        self._supervisor = Supervisor(socket_path(self._var))
        self.announces = changes.socket_path() is not None

    def apply(self, spec: WorkloadSpec) -> Ref:
        check_spec(spec)
        if spec.gpus:
            raise PermanentError(
                "GpusNotPlaced",
                "The local provisioner does not assign GPUs to replicas. Set 0 "
                "GPUs: a worker then sees the GPUs of this machine like any "
                "process.",
            )
        with self._alone(spec.name):
            infos = self._infos(spec.name)
            workload = self._settle(spec.name, infos) or Workload(spec.name)
            if workload.deleting:
                raise TemporaryError(
                    "StillStopping", f"{spec.name} is still being deleted.", delay_s=1.0
                )
            workload.owner, workload.role = spec.owner, spec.role
            step = plan_step(spec.replicas, spec.spec_hash, self._seen(workload, infos, spec))
            changes = bool(step.create) or step.replace is not None
            secrets = read_secrets(spec.secret_env, spec.secrets_within) if changes else {}
            # By index rather than from the plan: a replica being replaced may have become surplus.
            surplus = [
                index
                for index, replica in workload.replicas.items()
                if index >= spec.replicas and replica.goal is not Goal.REMOVE
            ]
            self._remove(workload, infos, sorted(surplus, reverse=True))
            if step.replace is not None:
                workload.replicas[step.replace].goal = Goal.REPLACE
                state.save(self._var, workload)
                self._supervisor.stop(_program(spec.name, step.replace))
            self._start(spec, workload, step.create, secrets)
            self._place_live_files(spec, workload)
        return Ref(self.name, spec.name)

    def observe(self, ref: Ref) -> Observation:
        check_ref(ref, self.name)
        with self._alone(ref.name):
            infos = self._infos(ref.name)
            workload = self._settle(ref.name, infos)
        if workload is None:
            return Observation(exists=False)
        replicas = observation.observe(self._var, workload, infos)
        return Observation(True, hung_processes.end(workload.role, replicas))

    def delete(self, ref: Ref) -> None:
        check_ref(ref, self.name)
        with self._alone(ref.name):
            workload = self._load(ref.name, {})
            if workload is not None:  # first, so that a restarted supervisord starts none
                workload.deleting = True
                for index, replica in workload.replicas.items():
                    replica.goal = Goal.REMOVE
                    folders.program_path(self._var, _program(ref.name, index)).unlink(True)
                state.save(self._var, workload)
            infos = self._supervisor.all()
            workload = self._load(ref.name, infos)
            if workload is not None:
                workload.deleting = True
                self._remove(workload, infos, tuple(workload.replicas))
                self._settle(ref.name, self._supervisor.all())

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        check_ref(ref, self.name)
        with self._retyped():
            workload = self._load(ref.name, {})
            names = (
                [_program(ref.name, index) for index in sorted(workload.replicas)]
                if (workload)
                else []
            )
            return {name: folders.tail(log_path(self._var, name), tail_lines) for name in names}

    def _start(
        self,
        spec: WorkloadSpec,
        workload: Workload,
        indexes: tuple[int, ...],
        secrets: dict[str, str],
    ) -> None:
        if not indexes:
            return
        for index in indexes:
            if workload.replicas.get(index, Replica()).spec_hash != spec.spec_hash:
                folders.forget_deaths(state.replica_dir(self._var, spec.name, index))
        self._remember_ports(spec, workload, indexes)
        for index in indexes:
            folder = state.replica_dir(self._var, spec.name, index)
            last_ports = workload.replicas[index].ports
            folders.prepare(spec, index, folder, last_ports, secrets)
            program = _program(spec.name, index)
            folders.write_program(self._var, program, folder, spec.stop_grace_s)
        self._supervisor.reread()
        for index in indexes:
            program = _program(spec.name, index)
            if self._supervisor.remove(program):  # a stopped group keeps its old configuration
                self._supervisor.add(program)
                workload.replicas[index].spec_hash = spec.spec_hash
        state.save(self._var, workload)

    def _remember_ports(
        self, spec: WorkloadSpec, workload: Workload, indexes: tuple[int, ...]
    ) -> None:
        fixed = (*state.fixed_ports(spec.role), *spec.shared_ports)
        with ports_lock(self._var):
            taken = state.ports_in_use(self._var)
            for index in indexes:
                last_ports = workload.replicas.get(index, Replica()).ports
                last_ports = last_ports | _shared_ports(spec, workload)
                last_ports = last_ports or ports.free_ports(spec.preferred_ports, taken)
                chosen = ports.choose_ports(spec.ports, last_ports, taken, fixed)
                taken.update(chosen.values())
                workload.replicas[index] = Replica(
                    ports=chosen,
                    probe_path=spec.probe.path,
                    channels=list(spec.channels),
                    probe_port=spec.probe.port,
                    probe_timeout_s=spec.probe.timeout_s,
                )
            state.save(self._var, workload)

    def _remove(self, workload: Workload, infos: Infos, indexes: Sequence[int]) -> None:
        for index in indexes:
            workload.replicas[index].goal = Goal.REMOVE
        state.save(self._var, workload)
        for index in indexes:
            program = _program(workload.name, index)
            folders.program_path(self._var, program).unlink(missing_ok=True)
            if program in infos:
                self._supervisor.stop(program)

    def _place_live_files(self, spec: WorkloadSpec, workload: Workload) -> None:
        for index, replica in workload.replicas.items():
            # An outdated replica may lack a port named in the new files; it is replaced later.
            if replica.goal is Goal.RUN and set(spec.ports) <= set(replica.ports):
                folder = state.replica_dir(self._var, spec.name, index)
                replacements = folders.replica_facts(spec, index, folder, replica.ports)
                folders.write_files(folder, spec.live_files, replacements)

    def _settle(self, name: str, infos: Infos) -> Workload | None:
        """Complete what earlier calls began; return None if nothing of the workload is left.

        Programs removed from supervisord are also removed from `infos`.
        """
        workload = self._load(name, infos)
        if workload is None:
            return None
        for index in list(workload.replicas):
            program, goal = _program(name, index), workload.replicas[index].goal
            info = infos.get(program)
            resting = info is None or info.state in AT_REST
            if goal is not Goal.RUN and info is not None and not resting:
                if info.state is ProcessState.STOPPING:
                    self._supervisor.stop_again(program)
                else:
                    self._supervisor.stop(program)
            elif goal is Goal.REMOVE and resting:
                self._forget(workload, index, infos)
        if workload.deleting and not workload.replicas:
            shutil.rmtree(state.workload_dir(self._var, name), ignore_errors=False)
            return None
        return workload

    def _forget(self, workload: Workload, index: int, infos: Infos) -> None:
        program = _program(workload.name, index)
        folders.program_path(self._var, program).unlink(missing_ok=True)
        if not self._supervisor.remove(program):
            return  # restarted concurrently: stopped by the next call
        infos.pop(program, None)
        folder = state.replica_dir(self._var, workload.name, index)
        if not folders.remove_replica(self._var, program, folder):
            del workload.replicas[index]
            state.save(self._var, workload)

    def _infos(self, name: str) -> Infos:
        """Return the workload's programs; all programs if its state is lost, to adopt them."""
        if state.load(self._var, name) is None:
            return self._supervisor.all()
        workload = self._load(name, {})
        indexes = workload.replicas if workload else ()
        return self._supervisor.some(_program(name, index) for index in indexes)

    def _load(self, name: str, infos: Infos) -> Workload | None:
        """Load the state and adopt programs and folders that it lacks."""
        folder = state.workload_dir(self._var, name)
        workload = state.load(self._var, name)
        names = set(infos) | {path.stem for path in include_dir(self._var).glob(f"{name}-*.conf")}
        indexes = {int(m[1]) for p in names if (m := re.fullmatch(f"{name}-(0|[1-9][0-9]*)", p))}
        if folder.is_dir():
            indexes |= {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
        elif not indexes:
            return None
        workload = workload or Workload(name)
        for index in indexes - workload.replicas.keys():
            workload.replicas[index] = Replica(goal=Goal.REMOVE if workload.deleting else Goal.RUN)
        return workload

    def _seen(
        self, workload: Workload, infos: Infos, spec: WorkloadSpec
    ) -> list[ReplicaObservation]:
        """Return observations for planning; a required replica that is down counts as missing."""
        current = all(r.spec_hash == spec.spec_hash for r in workload.replicas.values())
        observations = []
        for replica in observation.observe(self._var, workload, infos, probe=not current):
            record, info = workload.replicas[replica.index], infos.get(replica.name)
            replacing = record.goal is Goal.REPLACE and (info is None or info.state in AT_REST)
            missing = replica.state is ReplicaState.EXITED or replacing
            if missing and replica.index < spec.replicas:
                continue
            fixed = state.fixed_ports(spec.role)
            if replica.state is ReplicaState.BACKOFF and not all(
                ports.is_free(port) for name, port in record.ports.items() if name not in fixed
            ):
                # It exits because another process holds its port: assign a new one.
                replica = replace(replica, spec_hash="")
            observations.append(replica)
        return observations

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with self._retyped(), workload_lock(self._var, name):
            yield

    @contextmanager
    def _retyped(self) -> Iterator[None]:
        try:
            yield
        except ProvisionError:
            raise
        except UnsafeValueError as error:
            raise PermanentError("UnsafeValue", str(error)) from error
        except OSError as error:
            raise TemporaryError("LocalFiles", f"{self._var}: {error}") from error


def _shared_ports(spec: WorkloadSpec, workload: Workload) -> dict[str, int]:
    """Return the numbers of shared ports, those of the replica with the lowest index."""
    return {
        name: replica.ports[name]
        for _, replica in sorted(workload.replicas.items(), reverse=True)
        for name in spec.shared_ports
        if name in replica.ports
    }


def _program(workload: str, index: int) -> str:
    return f"{workload}-{index}"
