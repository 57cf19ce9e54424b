-- Memory of a cxlpool pool for the jobs of Slurm: copy it beside slurm.conf. docs/slurm.md says how.
--
-- The work is done by `cxlpool slurm`, which runs as Slurm's user. Whatever it prints goes to Slurm as it is: a figure,
-- or why a job gets no memory.

local function cxlpool(...)
  local command = "cxlpool slurm"
  for _, word in ipairs({...}) do
    command = command .. " '" .. tostring(word):gsub("'", "'\\''") .. "'"
  end
  local pipe = io.popen(command .. '; echo " $?"')
  local answer, code = pipe:read("*a"):match("^(.-)%s+(%d+)%s*$")
  pipe:close()
  if code == "0" then return slurm.SUCCESS, answer end
  if not answer or answer == "" then answer = "`" .. command .. "` ended with " .. tostring(code) end
  return slurm.ERROR, answer
end

local function nothing_to_do() return slurm.SUCCESS end

-- slurmctld waits for these, with its locks held, or while it starts. None of them takes longer than a second.
function slurm_bb_job_process(job_script) return cxlpool("validate", job_script) end
function slurm_bb_pools() return cxlpool("pools") end
function slurm_bb_paths(job_id, job_script, path_file) return cxlpool("paths", job_id, job_script, path_file) end
function slurm_bb_get_status() return slurm.SUCCESS, select(2, cxlpool("status")) end

-- These run beside it, for as long as OtherTimeout in burst_buffer.conf lets them.
function slurm_bb_setup(job_id, uid, gid, pool, bytes, job_script)
  return cxlpool("setup", job_id, uid, bytes, job_script)
end
function slurm_bb_real_size(job_id) return cxlpool("real-size", job_id) end
function slurm_bb_pre_run(job_id, job_script) return cxlpool("pre-run", job_id, job_script) end
function slurm_bb_job_teardown(job_id) return cxlpool("teardown", job_id) end

slurm_bb_data_in = nothing_to_do
slurm_bb_test_data_in = nothing_to_do
slurm_bb_post_run = nothing_to_do
slurm_bb_data_out = nothing_to_do
slurm_bb_test_data_out = nothing_to_do

return slurm.SUCCESS
